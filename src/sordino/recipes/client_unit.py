"""Whole clients as units: rounds, local work, bound and rates.

Everyone takes part in every round, so that T rounds at one epsilon have noise of z sqrt(T) / n bounds on a mean of n clients, with the multiplier
z of a single release. Over all rounds `left` of it stands against the signal: z sqrt(d) / n for d parameters, whatever T is. Where that is
much, few rounds and longer local work are best; where it is little, more rounds.

Models that are linear in their input are moved by momentum, at the rate at which the noise on each weight at the end has a fixed size (as in
recipe `frontier`): less noise allows longer steps. In trials this was 4 points ahead of Adam at epsilon 1 (digits, 100 clients), and equal to it
at 8 (docs/regret.md). Other networks keep Adam.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from sordino.plain import Json
from sordino.preparation import Features, Fourier
from sordino.privacy import calibration
from sordino.recipes import frontier, tables
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.recipes.networks import SMALLEST_PICTURE, model_for, parameters

MOMENTUM = 0.9
DELTA = 1e-5  # rates suit the usual one, also where another is given
USUAL_ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 40, 20, 120  # usual: where noise that is left is as large as the signal
LOUD = 0.1  # noise over signal, from which on longer local work pays: 4 points at 0.95 (digits), half a point at 0.15
LOCAL_STEPS, MOST_EPOCHS, FEWER_EPOCHS = 10, 10, 5  # fewer: of networks that are not linear, which take longer
MOST_BATCH = 32
# The deviation of the noise on each weight at the end. Inputs of d numbers of size 1 have length sqrt(d): noise on a score is 2.4 then.
NOISE, ON_SCORE = 0.3, 2.4
# Rows of features have length 1. Those of signals and tables take more noise.
ON_FEATURES, ON_SIGNALS = 1.2, 1.7
# Clients times epsilon for each class, from which on a run on a table tells whether it has settled: fewer than of records, since a client says more.
SETTLES_FROM = 100
# A head on rows of length 1 is drowned as so many parameters for each class would be, however many features there are. The number was fitted to
# six runs on MNIST in both units (docs/regret.md, forecasts); the noise of the mean is in it.
FEATURES_AS = 100
FEATURE_RATE, FEATURE_BOUND = 1.0, 0.02  # local steps along gradients of rows of length 1
# Noise over signal, up to which cosines beside a linear model pay. At 0.12 to 0.32 they gained 1 to 14 points on four tables and lost 0.2 and
# 0.8 on two; at 0.59 to 1.1 they lost 1 to 3 on four and gained 5 on one (100 and 300 clients, epsilon 1 and 4, docs/regret.md).
TAUGHT = 0.4
# The bound over the length of a local step at first. Updates get shorter as the model learns, and one below the bound says less than it may.
SHORT = 0.1


def left_over(dimension: int, clients: int, epsilon: float) -> float:
    """Noise over signal when all rounds are averaged; everyone takes part."""
    return _single(epsilon) * math.sqrt(dimension) / clients


def counted(dimension: int, classes: int, features: bool) -> int:
    """Parameters that the noise counts as."""
    return min(dimension, FEATURES_AS * classes) if features else dimension


def rounds_for(left: float) -> int:
    return int(min(max(USUAL_ROUNDS * left**-0.6, FEWEST_ROUNDS), MOST_ROUNDS))


def rounds(left: float) -> Choice:
    much = "much" if left > LOUD else "little"
    return Choice(
        "rounds", rounds_for(left), f"averaged over all of them, noise is {left:.2g} times the signal, which is {much}"
    )


def local_work(facts: PublicFacts, left: float, features: bool, linear: bool) -> list[Choice]:
    """What a client does in a round. A batch holds all that a client of usual size has: a rest of one record would step as far as all others."""
    each = max(1, -(-facts.records // facts.clients))
    batch = min(MOST_BATCH, each)
    epochs = max(1, min(MOST_EPOCHS if linear else FEWER_EPOCHS, LOCAL_STEPS * batch // each))
    why = f"about {LOCAL_STEPS} local steps in a round: through much noise, longer updates of clients point one way"
    if features or left <= LOUD:
        epochs = 1
        why = "features need no more" if features else "through little noise, one pass over its records is enough"
    return [Choice("batch_size", batch, f"clients hold about {each:,} records"), Choice("local_epochs", epochs, why)]


def linear_steps(
    fan: int, features: bool, rounds: int, clients: int, epsilon: float, optimizer: str, signals: bool = False
) -> list[Choice]:
    """Local rate, first bound and the server's steps of a model that is linear in its input. `signals`: features were made of them, or of tables."""
    local = FEATURE_RATE if features else sgd_rate(fan)
    bound = FEATURE_BOUND if features else float(f"{SHORT * local * math.sqrt(fan):.2g}")
    size = min(NOISE, ON_SCORE / math.sqrt(fan))
    if features:
        size = ON_SIGNALS if signals else ON_FEATURES
    # A falling rate has a third of the variance.
    noise = _single(epsilon) * math.sqrt(rounds) / clients * math.sqrt(rounds / 3)
    rate = float(f"{size * (1.0 if optimizer == 'sgd' else 1 - MOMENTUM) / noise:.3g}")
    inputs = "rows of features" if features else f"units of {fan:,} inputs"
    return [
        Choice("lr", local, f"for local SGD and {inputs}"),
        Choice("method", "dp-fedavg", "updates are cut to one length, so that no bound need be found"),
        Choice("bound", bound, "well below a local step at first: updates get shorter, and are to reach it to the end"),
        Choice("server_optimizer", "momentum", "the model is linear: steps add up, and so does their noise"),
        Choice(
            "server_lr", rate, f"noise on each weight is then {size:.2g} after {rounds} rounds of {clients:,} clients"
        ),
    ]


def sgd_rate(fan: int) -> float:
    """Local steps that stay stable for inputs of unit size: the curvature grows with their number."""
    return float(f"{min(0.5, 4 / fan):.2g}")


def model(facts: PublicFacts, epsilon: float | None) -> Choice:
    """The network that suits the shape; it is clients, not records, that teach parameters through the noise."""
    if facts.table and epsilon is not None:
        return _for_tables(facts, epsilon)
    found = model_for(replace(facts, records=facts.clients), epsilon)
    return replace(found, reason=found.reason.replace("records", "clients"))


def _for_tables(facts: PublicFacts, epsilon: float) -> Choice:
    """Cosines beside a linear model, where their noise is little."""
    left = left_over(parameters("wide-fourier", facts), facts.clients, epsilon)
    if left > TAUGHT:
        few = f"{facts.clients:,} clients at epsilon {epsilon:g} teach few parameters"
        return Choice("model", "table-linear", f"for {facts.said}; {few}")
    why = f"a linear model and cosines beside it, whose noise is {left:.2g} times the signal"
    return Choice("model", "wide-fourier", f"for {facts.said}: {why}")


def features(facts: PublicFacts, epsilon: float, delta: float, unscaled: int, pin: bool) -> list[Choice]:
    """Fixed features and a linear head, where they beat a network; `unscaled` columns of a table have scales of their own.

    A linear model learns a table, or a picture of a few pixels, from fewer clients than features ask for. These pay from where their covariances are
    heard: with 100 to 300 clients they then gained up to 19 points and lost 2 at most, and otherwise lost 1 to 7 on eight of ten tables.
    """
    made: Features | Fourier
    if facts.table:
        made = tables.preparation(facts, facts.clients, epsilon, delta, unscaled)
    else:
        made = frontier.flattened(facts.shape, frontier.SHORT, facts.clients, epsilon, delta)
    few = facts.table or len(facts.shape) == 3 and min(facts.shape[1:]) < SMALLEST_PICTURE
    if few and not made.covariances:
        return []
    settings: Json = (made.pinned(facts.shape) if pin else made).to_json()
    won = f"for {facts.said}: with features that need no data most such data was learnt better than by a network (--recipe none trains one)"
    found = [
        Choice("prepare", settings, f"{won}; {100 * made.share:.2g}% of the budget finds {made.found}"),
        Choice("model", "head", "features need a linear head only"),
    ]
    if facts.table and facts.clients * epsilon >= SETTLES_FROM * facts.classes:
        found.append(Choice("average", "settled", tables.WHY_SETTLED))
    return found


def is_linear(weights: Iterable[int]) -> bool:
    """`weights`: the numbers of axes of a network's parameters. One matrix is a linear model."""
    return sum(axes > 1 for axes in weights) == 1


def _single(epsilon: float) -> float:
    """The multiplier of one release that takes the whole budget."""
    return calibration.multiplier_for(epsilon, DELTA, 1, 1.0)
