"""``sordino account``: epsilon, multiplier or rounds, from the other two."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sordino.cli.numbers import count, number, plain, word
from sordino.errors import BadInput, positive, whole
from sordino.errors import rate as a_rate
from sordino.plain import Json
from sordino.privacy.vocabulary import Relation, Sampling, Unit

if TYPE_CHECKING:
    from sordino.privacy.events import Event

EXAMPLES = """examples:
  sordino account --rate 0.1 --rounds 200 --multiplier 1.4 --delta 1e-5     epsilon
  sordino account --rate 0.1 --rounds 200 --epsilon 4 --delta 1e-5          the multiplier it takes
  sordino account --rate 0.1 --multiplier 1.4 --epsilon 4 --delta 1e-5      the rounds it allows
  sordino account --rounds 30 --epsilon 4                                   everyone takes part: exact
  sordino account --sampling fixed --clients 100 --cohort 10 --rounds 50 --multiplier 2
  sordino account --rate 0.1 --schedule '2*100,1.5*100' --epsilon 4         a schedule, scaled to the budget
  sordino account --rate 0.01 --rounds 1000 --multiplier 3 --laplace --check

A multiplier is the standard deviation of the noise on the sum (the scale, for Laplace) over the bound of one
contribution, whatever the relation."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "account",
        help="epsilon, multiplier or rounds from the other two",
        description="Give two of --epsilon, --multiplier and --rounds; the command finds the third, rounded to the private side.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--epsilon", metavar="E", help="the budget")
    add("--delta", metavar="D", default="1e-5", help="the probability that the guarantee leaves out (default 1e-5)")
    add("--multiplier", metavar="Z", help="noise over bound")
    add("--rounds", metavar="T", help="how many rounds")
    add("--rate", metavar="Q", help="probability with which a unit takes part in a round (default 1)")
    add(
        "--sampling",
        metavar="{" + ",".join(Sampling) + "}",
        default="poisson",
        help="how the units of a round are drawn",
    )
    add("--clients", metavar="N", help="how many units there are; with --cohort, instead of --rate")
    add("--cohort", metavar="M", help="how many of them take part in a round")
    add(
        "--relation",
        metavar="{" + ",".join(Relation) + "}",
        help="neighbouring relation (default: follows the sampling)",
    )
    add("--unit", metavar="{" + ",".join(Unit) + "}", default="client", help="what is protected (default client)")
    add(
        "--schedule",
        metavar="Z1,Z2,...",
        help="the multiplier of each round, Z*COUNT for several equal ones; or a file of them",
    )
    add("--laplace", action="store_true", help="Laplace noise on an L1-clipped sum")
    add("--check", action="store_true", help="ask dp-accounting as well (takes seconds)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Print the one of epsilon, multiplier and rounds that was not given."""
    answer = _answer(args)
    if args.json:
        print(json.dumps({key: plain(value) for key, value in answer.items()}))
    else:
        print(_text(answer))
    return 0


def _answer(args: argparse.Namespace) -> dict[str, object]:
    delta = number(args, "delta")
    if delta is None or not 0 < delta < 1:
        raise BadInput(f"--delta must lie between 0 and 1, not {args.delta!r}.")
    sampling, unit = cast(Sampling, word(args, "sampling", Sampling)), word(args, "unit", Unit)  # it has a default
    given = {"epsilon": number(args, "epsilon"), "multiplier": number(args, "multiplier")}
    for name, value in given.items():
        if value is not None:
            positive(**{name: value})
    rounds = count(args, "rounds")
    if rounds is not None:
        whole(1, rounds=rounds)
    rate = _rate(args, sampling)
    schedule = None if args.schedule is None else _schedule(args.schedule)
    if schedule is None and [*given.values(), rounds].count(None) != 1:
        raise BadInput("Give exactly two of --epsilon, --multiplier (or --schedule) and --rounds; the third is found.")
    if schedule is not None and (given["multiplier"] is not None or rounds not in (None, len(schedule))):
        raise BadInput(f"--schedule already says the multipliers of {len(schedule)} rounds; leave out the others.")
    relation = word(args, "relation", Relation)

    # All is read and makes sense: only now is the mathematics imported.
    from sordino.privacy import accounting

    relation = relation or accounting.default_relation(sampling)
    setting = _Setting(rate, sampling, relation, args.laplace, delta)
    if schedule is None:
        found, event = _third(setting, given["epsilon"], given["multiplier"], rounds)
    else:
        found, event = _scaled(setting, given["epsilon"], schedule)
    spent = accounting.epsilon(event, delta, relation)
    answer = {
        **found,
        "epsilon": spent.epsilon,
        "epsilon_rdp": spent.epsilon_rdp,
        "delta": delta,
        "accountant": spent.accountant,
        "relation": str(relation),
        "unit": str(unit),
        "rate": rate[1] / rate[0] if isinstance(rate, tuple) else rate,
        "sampling": str(sampling),
        "mechanism": "laplace" if args.laplace else "gaussian",
    }
    if given["epsilon"] is not None:
        answer["budget"] = given["epsilon"]
    if args.check:
        from sordino.privacy import dp_accounting_check as library

        answer["epsilon_library"] = library.epsilon(
            event, delta, relation, "rdp" if spent.accountant == "rdp" else "pld"
        )
    return answer


@dataclass(frozen=True)
class _Setting:
    rate: float | tuple[int, int]
    sampling: Sampling
    relation: Relation
    laplace: bool
    delta: float


def _third(
    s: _Setting, epsilon: float | None, multiplier: float | None, rounds: int | None
) -> tuple[dict[str, object], Event]:
    """What was asked for and how it was answered, and the event."""
    from sordino.privacy import accounting, calibration, events

    asked = "epsilon"
    if epsilon is not None and rounds is not None:
        asked = "multiplier"
        multiplier = calibration.multiplier_for(epsilon, s.delta, rounds, s.rate, s.sampling, s.relation, s.laplace)
    elif epsilon is not None and multiplier is not None:
        asked = "rounds"
        rounds = calibration.rounds_for(epsilon, s.delta, multiplier, s.rate, s.sampling, s.relation, s.laplace)
    assert multiplier is not None and rounds is not None
    once = accounting.round_event(s.sampling, s.rate, multiplier, s.laplace)
    event = events.repeated(once, rounds) if rounds else events.nothing()
    return {"asked": asked, "multiplier": multiplier, "rounds": rounds}, event


def _scaled(s: _Setting, epsilon: float | None, schedule: list[float]) -> tuple[dict[str, object], Event]:
    """The same for a schedule: with a budget, the factor that fits it."""
    from sordino.privacy import accounting, calibration, events

    def scaled(factor: float) -> Event:
        return events.composed(accounting.round_event(s.sampling, s.rate, factor * z, s.laplace) for z in schedule)

    scale = 1.0 if epsilon is None else calibration.scale_for(scaled, epsilon, s.delta, s.relation)
    found: dict[str, object] = {
        "asked": "epsilon" if epsilon is None else "scale",
        "multiplier": None,
        "rounds": len(schedule),
        "scale": scale,
        "schedule": [scale * z for z in schedule],
    }
    return found, scaled(scale)


def _rate(args: argparse.Namespace, sampling: Sampling) -> float | tuple[int, int]:
    rate, clients, cohort = number(args, "rate"), count(args, "clients"), count(args, "cohort")
    if rate is not None:
        a_rate(rate=rate)
    if (clients is None) != (cohort is None):
        raise BadInput("--clients and --cohort go together; give both, or --rate.")
    if clients is not None and cohort is not None:
        whole(1, clients=clients, cohort=cohort)
        if rate is not None:
            raise BadInput("Give --rate, or --clients and --cohort, not both.")
        if cohort > clients:
            raise BadInput(f"--cohort must be at most the {clients} clients, not {cohort}.")
    if sampling is Sampling.NONE:
        if rate not in (None, 1.0) or cohort != clients:
            raise BadInput(
                "--sampling none means that everyone takes part in every round; leave out --rate and --cohort."
            )
        return 1.0
    if clients is not None and cohort is not None:
        return clients, cohort
    if rate is None and sampling is Sampling.FIXED:
        raise BadInput("--sampling fixed needs --clients and --cohort, or --rate.")
    return 1.0 if rate is None else rate


def _schedule(text: str) -> list[float]:
    """Multipliers from the option itself or from a file; commas, blanks and lines part them."""
    try:
        if Path(text).is_file():
            text = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"--schedule could not be read: {error}.") from None
    found: list[float] = []
    for item in text.replace("[", " ").replace("]", " ").replace(",", " ").split():
        value, star, times = item.partition("*")
        try:
            multiplier, copies = float(value), int(times) if star else 1
        except ValueError:
            raise BadInput(
                f"--schedule takes multipliers like 2,1.5 or 2*100,1.5*100, or a file of them, not {item!r}."
            ) from None
        if not (math.isfinite(multiplier) and multiplier > 0 and copies > 0):
            raise BadInput(f"--schedule takes multipliers above 0, not {item!r}.")
        found += [multiplier] * copies
    if not found:
        raise BadInput("--schedule is empty; give at least one multiplier.")
    return found


_HOW = {
    "pld": "by privacy loss distributions",
    "gdp": "exactly, by the Gaussian trade-off curve",
    "rdp": "by Renyi accounting",
    "none": "nothing was released",
}


def _text(a: Json) -> str:
    lines = []
    if a["asked"] == "multiplier":
        lines.append(f"multiplier  {a['multiplier']:g}")
    elif a["asked"] == "rounds":
        lines.append(f"rounds      {a['rounds']:,}" + ("" if a["rounds"] else "  (not one fits: raise the multiplier)"))
    elif a["asked"] == "scale":
        lines.append(f"scale       {a['scale']:g}  (times the schedule)")
    beside = "" if a["accountant"] in ("rdp", "none") else f"; Renyi accounting alone would say {a['epsilon_rdp']:.4g}"
    lines.append(f"epsilon     {a['epsilon']:.6g}  at delta {a['delta']:g}, {_HOW[a['accountant']]}{beside}")
    if "epsilon_library" in a:
        lines.append(f"            {a['epsilon_library']:.6g}  by dp-accounting")
    unit = {"client": "all data of one client", "example": "one record"}[a["unit"]]
    lines.append(f"protects    {unit}, relation {a['relation']}")
    who = "everyone takes part"
    if a["rate"] < 1:
        who = f"a unit takes part with probability {a['rate']:.4g} ({a['sampling']} sampling, secret)"
    noise = "as scheduled" if a["multiplier"] is None else f"of multiplier {a['multiplier']:g}"
    lines.append(f"rounds      {a['rounds']:,}, {who}; {a['mechanism'].capitalize()} noise {noise}")
    return "\n".join(lines)
