"""What is looked at before the first grant: the model, the loss, the rule, the statement. Whatever cannot work is refused here."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from sordino import defences
from sordino.clients.personal import coordinates
from sordino.data.describe import unscaled
from sordino.data.ingest import NO_TEST
from sordino.data.schema import CLASSIFICATION
from sordino.errors import SordinoWarning
from sordino.federation.checkpoint import TrainState
from sordino.federation.population import Federation
from sordino.methods import RuleContext
from sordino.plan import Plan
from sordino.preparation import Stages
from sordino.schemes import certified
from sordino.schemes.build_statement import build_statement
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import nn

    from sordino.clients.descent import Loss
    from sordino.rules.base import Rule


def advise(federation: Federation, plan: Plan) -> tuple[str, ...]:
    """What a user should hear before the budget is spent. It looks at public data only."""
    said = []
    if plan.preparation is None:  # which scales
        said.append(unscaled(federation.schema, None if federation.test is None else federation.test[0]))
    if federation.test is None and federation.schema is not None and plan.test != NO_TEST and plan.holdout is None:
        said.append(
            "there is no public test set, so nothing will say how good the model is: give one (--test FILE), hold a share of the "
            "records out (--test holdout=0.1, released with noise), or say --test none."
        )
    told = tuple(sentence for sentence in said if sentence is not None)
    for sentence in told:
        warnings.warn(sentence, SordinoWarning, stacklevel=3)
    return told


def rehearse_statement(terms: Terms, model: nn.Module, federation: Federation) -> None:
    """The page that is written first at the end can be written."""
    dimension = sum(p.numel() for p in model.parameters() if p.requires_grad)
    build_statement(terms, TrainState(0, np.zeros(dimension, np.float32), {}, {}), notes=federation.notes).text()


def build_rule(terms: Terms, model: nn.Module) -> Rule:
    """The rule of the plan's method; refused before data is touched if no proof covers what it asks."""
    sizes = tuple(p.numel() for p in model.parameters() if p.requires_grad)
    rule = terms.plan.method_spec.build(RuleContext(terms.plan, sizes, terms.units, terms.multiplier or None))
    certified.check_rule(terms, rule)
    return rule


def check_model(model: nn.Module, federation: Federation, plan: Plan, stages: Stages | None, loss: Loss | None) -> None:
    """A model or a loss that does not fit the data, the defence or the personal layers is refused before anything is granted.

    Of records it sees shapes alone; of the public test set all of it, once, as the evaluation at the end does.
    """
    import torch

    from sordino.gradients.flat import check_output, layout
    from sordino.rehearsal import rehearse

    x, y = federation[0]
    if stages is not None:
        shape, dtype = stages.shape, torch.float32
    else:
        shape, dtype = tuple(x.shape[1:]), torch.from_numpy(np.array(x[:0])).dtype
    check_output(model, shape, dtype, federation.classes, y.shape[1:] if federation.task == CLASSIFICATION else ())
    defences.check_model(defences.build(plan), model, shape, dtype)
    if plan.personal is not None:
        coordinates(layout(model), plan.personal)
    rehearse(model, federation, loss, shape, dtype, prepared=stages is not None)
