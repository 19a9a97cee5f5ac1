"""``sordino audit``: what the canaries of a run show about its epsilon, from below."""

from __future__ import annotations

import argparse
import json
import sys

from sordino.errors import BadInput
from sordino.plain import Json

ABOUT = """Turn the canaries of a run (sordino train --canaries N) into a lower bound on its epsilon, at a level of
confidence.

Exit code 4 if the bound exceeds the proven epsilon."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "audit",
        help="what the canaries of a run show about its epsilon, from below",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--confidence", type=_confidence, default=0.95, help="confidence of the lower bound (default 0.95)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def _confidence(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"confidence must be a number between 0 and 1, not {text!r}.") from None


def run(args: argparse.Namespace) -> int:
    """Print the lower bound on epsilon that the canaries of a run give."""
    from sordino.audit.measure import AuditFailed, audit

    found = audit(args.run, args.confidence)
    print(json.dumps({**found, "run": args.run}) if args.json else _page(found))
    if not found["contradicted"]:
        return 0
    failed = AuditFailed(
        f"the audit measured epsilon of at least {found['epsilon_lower']:.3g}, and at most {found['epsilon_proven']:.3g} "
        "was proven: do not release this model, and report this."
    )
    print(f"sordino: {failed}", file=sys.stderr)
    return failed.exit_code


def _page(found: Json) -> str:
    """The few lines that are asked for first."""
    proven, claimed = found["epsilon_proven"], found["epsilon_claimed"]
    lines = [
        f"Measured   epsilon of at least {found['epsilon_lower']:.3g}, with {found['confidence']:.0%} confidence "
        f"({found['bound']})",
        f"Proven     {'not private' if proven == 'inf' else f'at most {proven:.4g}'} at delta {found['delta']:g}",
    ]
    if claimed is not None:
        verdict = ": refuted" if found["epsilon_lower"] > claimed else ""
        lines.append(f"Claimed    {claimed:.4g} by the paper's own accounting{verdict}")
    lines += [
        f"At most    {found['largest_provable']:.3g} could have been shown with {found['canaries']} canaries",
        f"Attack     {found['correct']} of {found['guesses']} guesses right on {found['canaries']} canaries, "
        f"{found['contributed']} of which contributed ({found['view']})",
        f"Any        at least {found['one_run']:.3g} without any assumption on the kind of noise",
    ]
    for name, view in found["views"].items():
        if name != found["view"]:
            lines.append(f"Also       at least {view['epsilon_lower']:.3g} from the {name.replace('-', ' ')} alone")
    shot = found["canary_clients"]
    if shot is not None:
        guess = shot["epsilon_estimate"]
        told = "beyond all bounds" if guess == "inf" else f"{guess:.3g}"
        lines.append(
            f"Estimate   {told} (a fit, no bound); at least {shot['epsilon_lower']:.3g} if canaries are independent"
        )
    return "\n".join(lines)
