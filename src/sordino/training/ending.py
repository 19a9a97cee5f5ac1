"""What a run leaves behind when its rounds are over: weights, figures, a model card, a manifest and a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sordino import evaluation, record
from sordino.callbacks import Run
from sordino.engines.client_scores import Spread
from sordino.evaluation import Figures
from sordino.federation import checkpoint
from sordino.federation.folder import RunFolder
from sordino.federation.population import Federation
from sordino.files import write_atomically
from sordino.inference import card
from sordino.noisy_figures import NoisyFigures
from sordino.plan import Plan
from sordino.schemes.terms import Terms
from sordino.training.result import Result

if TYPE_CHECKING:
    from torch import nn

    from sordino.privacy.statement import Statement


def finish(
    module: nn.Module,
    federation: Federation,
    terms: Terms,
    folder: RunFolder,
    run: Run,
    statement: Statement,
    accuracy: float | None,
    plan: Plan,
    fairness: Spread | None,
    tested: NoisyFigures | None,
) -> Result:
    """Save the trained model, evaluate it, and write statement, report, card and manifest."""
    from sordino.gradients.flat import Flat
    from sordino.models.packed import unpacked
    from sordino.report.run import write_report
    from sordino.verify import manifest

    module.load_state_dict(run.initial)  # what is saved is the trained vector, and the rest as it was before training
    Flat(module).load(run.state.theta)
    found = _evaluate(module, federation)
    module = unpacked(module)
    about = record.about_weights(federation, statement.to_json())
    write_atomically(folder.path / "model.safetensors", checkpoint.weights(module, about), durable=True)
    if found is not None:
        folder.write(evaluation.NAME, json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
    folder.write(card.NAME, card.card(folder.path))
    manifest.write(folder.path)
    stopped = statement.stopped or None
    said = (*(() if found is None else found.warnings), *(() if tested is None else tested.warnings))
    result = Result(
        module,
        plan,
        terms,
        statement,
        folder.path,
        statement.rounds,
        stopped,
        accuracy,
        run.history,
        said,
        fairness,
        found,
        tested,
    )
    write_report(result.folder)
    return result


def _evaluate(module: nn.Module, federation: Federation) -> Figures | None:
    """Everything that the public test set says about the released model."""
    from sordino.inference.running import scores_of

    if federation.test is None:
        return None
    x, y = federation.test
    scale = None if federation.schema is None else federation.schema.scale
    return evaluation.evaluate(scores_of(module, x), y, federation.task, federation.class_names, scale)


def write_statement(folder: RunFolder, statement: Statement) -> None:
    """Write statement.txt and statement.json."""
    folder.write("statement.txt", statement.text() + "\n")
    folder.write("statement.json", json.dumps(statement.to_json(), indent=2) + "\n")
