"""Figures of the finished model: at each client on public splits, and with noise on the records that were held out."""

from __future__ import annotations

import copy
import json
import warnings

from sordino.callbacks import Run
from sordino.data.schema import CLASSIFICATION
from sordino.engines import Aborted, Setup, client_scores
from sordino.engines.client_scores import Spread
from sordino.errors import SordinoWarning
from sordino.noisy_figures import Measure, NoisyFigures
from sordino.privacy.ledger import Ledger
from sordino.schemes import held_out
from sordino.schemes.client import ClientUpdate


def client_spread(setup: Setup, run: Run) -> Spread | None:
    """How the model does at each client, on public splits. Figures of personal models stay with the personal models."""
    theta, work = run.state.theta, run.started.work
    if run.plan.task != CLASSIFICATION:
        return None  # there is no accuracy
    if setup.personal is not None and isinstance(work, ClientUpdate):
        own = client_scores.spread(
            setup.model, setup.federation, lambda k: work.own_model(k, run.state.round + 1, theta)
        )
        client_scores.write_personal(run.folder.personal, own)
    found = client_scores.spread(setup.model, setup.federation, lambda k: theta)
    if found is not None:
        run.folder.write("fairness.json", json.dumps(found.to_json(), indent=2) + "\n")
    return found


def held_out_test(
    setup: Setup, run: Run, measure: Measure, ledger: Ledger, test: held_out.Test | None
) -> NoisyFigures | None:
    """How good the model is on the held-out records, with noise; None if that was cut short. `test`: default here."""
    held = setup.federation.held_out
    assert held is not None
    model = copy.deepcopy(setup.model)
    model.load_state_dict(run.initial)
    ask = test or held_out.here(held, run.plan, measure, model)
    try:
        return held_out.play(setup.terms, measure, ledger, ask, run.state.theta, run.folder.path)
    except Aborted as gone:
        warnings.warn(f"the held-out records were not tested on: {gone}", SordinoWarning, stacklevel=2)
        return None
