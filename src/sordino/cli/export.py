"""``sordino export RUN``: the model of a finished run as ONNX, and its model card."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "write the model of a finished run as ONNX, or its model card"
    parser = commands.add_parser("export", help=text, description=text.capitalize() + ".")
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--onnx", metavar="FILE", help="write the model there (needs pip install 'sordino[onnx]')")
    parser.add_argument("--card", metavar="FILE", help="write the model card there (default: MODEL_CARD.md in the run)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Write the model as ONNX, its model card, or both."""
    from sordino.files import write_atomically
    from sordino.inference.card import NAME, card

    written = []
    if args.onnx:
        from sordino.inference.export import to_onnx
        from sordino.inference.loading import load

        written.append(str(to_onnx(load(args.run), args.onnx)))
    if args.card or not args.onnx:
        target = Path(args.card) if args.card else Path(args.run) / NAME
        text = card(args.run)
        write_atomically(target, text)
        written.append(str(target))
    print(json.dumps({"written": written}) if args.json else "\n".join(written))
    return 0
