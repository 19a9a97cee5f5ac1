"""``sordino plan``: what a budget means before there is any data."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from sordino import presets
from sordino.cli.numbers import count, number, plain, word
from sordino.errors import BadInput
from sordino.plain import Json
from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit

if TYPE_CHECKING:
    from sordino.plan import Plan
    from sordino.planning.planner import Forecast
    from sordino.planning.scenario import Scenario

EXAMPLES = """examples:
  sordino plan                                                              the defaults of `sordino train`
  sordino plan --clients 10 --rounds 30 --epsilon 4 --unit client --dimension 344000
  sordino plan --clients 1000 --cohort 100 --unit client --observer public --model cnn-mnist --epsilon 8
  sordino plan --data cifar10 --clients 5 --epsilon 3 --rounds 1000 --batch-size 512"""

# Public facts of the data sets: records for training, shape of one, classes.
SETS = {
    "digits": (1_437, (1, 8, 8), 10),
    "mnist": (60_000, (1, 28, 28), 10),
    "fashion-mnist": (60_000, (1, 28, 28), 10),
    "cifar10": (50_000, (3, 32, 32), 10),
    "cifar100": (50_000, (3, 32, 32), 100),
    "svhn": (73_257, (3, 32, 32), 10),
    "forda": (3_601, (1, 500), 2),
    "fordb": (3_636, (1, 500), 2),
    "chem97": (25_771, (4,), 6),
    "shakespeare": (322_406, (80,), 90),
    "shakespeare-speeches": (36_747, (80,), 90),
    "rail-simulated": (3_471, (1, 512), 3),
}
EVERY_POSITION = ("shakespeare-speeches",)
TEXTS = ("shakespeare", *EVERY_POSITION)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="what a budget means before there is any data: noise, signal, what to change",
        description="Noise against signal, whether learning is plausible, and what would make it so. Needs no data.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", metavar="NAME", help=f"the setting of a paper's experiment: {', '.join(presets.names())}")
    add("--clients", metavar="N", help="how many clients (default 10)")
    add("--examples", metavar="N", help="examples held by each client (default: --data dealt out evenly)")
    add("--data", metavar="NAME", help=f"data set whose public facts are used: {', '.join(SETS)} (default digits)")
    add("--cohort", metavar="M", help="clients expected in a round (default all)")
    add("--dimension", metavar="D", help="trained parameters (default: those of --model)")
    add("--model", metavar="NAME", help="network, see `sordino train` (default: what suits the data)")
    add("--rounds", metavar="T", help="how many rounds (default: as in `sordino train`)")
    add("--epsilon", metavar="E", help="the budget (default 4, unless --multiplier is given)")
    add("--delta", metavar="D", help="the probability that the guarantee leaves out (default 1e-5)")
    add("--multiplier", metavar="Z", help="noise over bound, instead of epsilon")
    add("--unit", metavar="{" + ",".join(Unit) + "}", help="what is protected (default example)")
    add("--observer", metavar="{" + ",".join(Observer) + "}", help="against whom (default secagg-server)")
    add(
        "--relation",
        metavar="{" + ",".join(Relation) + "}",
        help="neighbouring relation (default: follows the sampling)",
    )
    add(
        "--sampling",
        metavar="{" + ",".join(Sampling) + "}",
        help="how the units of a round are drawn (default: as in `sordino train`)",
    )
    add("--batch-size", metavar="B", help="records expected in a batch (example unit; default: as in `sordino train`)")
    add("--local-epochs", metavar="E", help="passes over a client's data in a round (default: as in `sordino train`)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Print what a budget means for these sizes, before there is any data."""
    setting = _setting(args)
    from sordino.planning.planner import Scenario, plan

    forecast = plan(Scenario(**setting))
    printed = as_published(args.preset, forecast.setting) if args.preset else None
    if args.json:
        print(json.dumps(to_json(forecast) | ({} if printed is None else {"as_published": printed})))
    else:
        print(_text(forecast, None if printed is None else _told(args.preset, printed)))
    return 0


# Of a forecast, what a preset may have been given besides.
_OF_SCENARIOS = (
    "clients", "rounds", "epsilon", "delta", "multiplier", "unit", "observer", "relation", "batch_size", "local_epochs",
)  # fmt: skip


def as_published(preset: str, setting: Scenario) -> Json | None:
    """What the run of a preset proves and claims, whose method is not the fixed bound of the forecast; None: it has no such run."""
    from sordino.plan import Plan
    from sordino.schemes import settle

    changed = {name: getattr(setting, name) for name in _OF_SCENARIOS} | {"cohort": setting.members}
    try:
        wanted = Plan(**presets.read(preset) | changed)
        terms = settle(wanted, setting.sizes)
    except BadInput:  # the method does not run in the setting that was given over the preset
        return None
    return {
        "method": wanted.method,
        "epsilon": plain(terms.spent.epsilon),
        "epsilon_claimed": terms.claimed,
        "multiplier": terms.multiplier or None,
        "reasons": list(terms.reasons),
    }


def _told(preset: str, printed: Json) -> str:
    """The same in words."""
    why = f"`sordino train --preset {preset}` says why"
    if printed["reasons"]:
        said = f"As published {printed['method']} is not private: no epsilon is proven for such a run ({why})."
    else:
        said = (
            f"As published {printed['method']} has multiplier {printed['multiplier']:.4g}, claims epsilon "
            f"{printed['epsilon_claimed']:.4g} and proves {printed['epsilon']:.4g}."
        )
    return f"{said} The figures above are those of a fixed bound, with the noise that a proof needs."


# Of a preset, what a forecast is about; the rest of it is for `sordino train`.
_OF_PRESETS = (
    "clients", "data", "cohort", "model", "rounds", "epsilon", "delta", "multiplier", "unit", "observer", "relation", "sampling",
    "batch_size", "local_epochs",
)  # fmt: skip
_USUAL = {"clients": "10", "data": "digits", "delta": "1e-5", "unit": "example", "observer": "secagg-server"}


def _fill(args: argparse.Namespace) -> None:
    """Options over the preset over the usual."""
    preset = presets.read(args.preset) if args.preset else {}
    if args.multiplier is not None:
        preset.pop("epsilon", None)
    if preset.get("unit") == Unit.EXAMPLE:
        preset.pop("sampling", None)  # of clients, in FedMAP as published; a proof draws records, by coins
    for name, value in (_USUAL | {name: str(preset[name]) for name in _OF_PRESETS if name in preset}).items():
        if vars(args)[name] is None:
            setattr(args, name, value)


def _setting(args: argparse.Namespace) -> Json:
    from sordino import recipes

    _fill(args)

    clients, dimension, examples = count(args, "clients"), count(args, "dimension"), count(args, "examples")
    if args.data not in SETS and (dimension is None or examples is None):
        raise BadInput(
            f"--data must be one of {', '.join(SETS)}, not {args.data!r}; or give --examples and --dimension."
        )
    assert clients is not None
    records, shape, classes = SETS.get(args.data, (0, (1,), 2))
    records = records if examples is None else examples * clients
    examples = max(1, records // max(clients, 1)) if examples is None else examples
    facts = recipes.PublicFacts(
        max(1, records), max(1, clients), shape, classes, args.data in TEXTS, args.data in EVERY_POSITION
    )
    words = {"unit": word(args, "unit", Unit), "observer": word(args, "observer", Observer)}
    given = {"data": args.data, "model": args.model, "epsilon": number(args, "epsilon"), **words}
    given["multiplier"] = number(args, "multiplier")
    given["recipe"] = None if args.data in SETS else "none"  # data that has no columns has a network
    if given["epsilon"] is not None and given["multiplier"] is not None:
        raise BadInput("Give epsilon, to find the multiplier, or multiplier, to find epsilon: one of the two.")
    usual, _ = recipes.resolve({key: value for key, value in given.items() if value is not None}, facts, pin=False)
    effective = None
    if dimension is None:
        dimension = recipes.parameters(usual.model, facts.prepared(usual.preparation))
        effective = effective_of(usual, dimension, classes)
    asked: dict[str, int | Sampling | None] = {
        name: count(args, name) for name in ("rounds", "batch_size", "local_epochs")
    }
    asked["sampling"] = word(args, "sampling", Sampling)
    return {
        **{name: getattr(usual, name) if value is None else value for name, value in asked.items()},
        "clients": clients,
        "dimension": dimension,
        "effective": effective,
        "examples": examples,
        "cohort": count(args, "cohort"),
        **words,
        "relation": word(args, "relation", Relation),
        "epsilon": usual.epsilon,
        "delta": number(args, "delta"),
        "multiplier": usual.multiplier,
    }


def effective_of(plan: Plan, dimension: int, classes: int) -> int | None:
    """Parameters that noise counts as where the model takes features; None: all of them."""
    from sordino.preparation import FEATURES
    from sordino.recipes import client_unit

    featured = plan.preparation is not None and plan.preparation.kind in FEATURES
    return client_unit.counted(dimension, classes, featured) if featured else None


def to_json(forecast: Forecast) -> dict[str, object]:
    """The forecast as plain data."""
    s = forecast.setting
    return {
        "multiplier": forecast.multiplier,
        "epsilon": plain(forecast.epsilon),
        "delta": s.delta,
        "unit": str(s.unit),
        "relation": str(forecast.relation),
        "observer": str(s.observer),
        "sampling": str(s.sampling),
        "accountant": forecast.accountant,
        "clients": s.clients,
        "cohort": s.members,
        "examples": s.examples,
        "batch_size": s.batch if s.unit is Unit.EXAMPLE else None,
        "dimension": s.dimension,
        "rounds": s.rounds,
        "releases": forecast.releases,
        "noise_to_bound": forecast.noise_to_bound,
        "noise_left": forecast.left,
        "verdict": forecast.verdict,
        "plausible": forecast.verdict == "plausible",
        "summary": forecast.summary,
        "remedies": [
            {
                "change": remedy.change,
                "text": remedy.text,
                "options": remedy.options,
                "noise_to_bound": remedy.noise_to_bound,
                "noise_left": remedy.left,
                "reaches": remedy.reaches,
            }
            for remedy in forecast.remedies
        ],
    }


def _text(forecast: Forecast, note: str | None = None) -> str:
    from sordino.planning.remedies import PLAUSIBLE

    s = forecast.setting
    who = f"{s.members:,} of {s.clients:,} clients a round" if s.members < s.clients else f"{s.clients:,} clients"
    batch = f", batches of {s.batch:,} from {s.records:,} records" if s.unit is Unit.EXAMPLE else ""
    lines = [
        f"setting     {who}, {s.rounds:,} rounds, {s.dimension:,} parameters{batch}",
        f"guarantee   epsilon {forecast.epsilon:.4g} at delta {s.delta:g} for each {s.unit}, towards {s.observer} "
        f"({forecast.relation}, {forecast.accountant})",
        f"multiplier  {forecast.multiplier:g}",
        f"noise       {forecast.noise_to_bound:,.3g} times the bound on a mean; over all rounds {forecast.left:,.3g} times the signal",
        "",
        *([*textwrap.wrap(note, 100), ""] if note else []),
        *textwrap.wrap(forecast.summary, 100),
    ]
    if forecast.remedies:
        lines += ["", "What to change, the best first:"]
        for place, remedy in enumerate(forecast.remedies, 1):
            short = (
                ""
                if remedy.reaches
                else f" Not enough alone ({remedy.left:,.3g} over all rounds is above {PLAUSIBLE:g})."
            )
            head = f"{place}. {remedy.change[0].upper()}{remedy.change[1:]}. "
            lines += textwrap.wrap(head + remedy.text + short, 100, subsequent_indent="   ")
            lines.append(f"   {remedy.options}")
    return "\n".join(lines)
