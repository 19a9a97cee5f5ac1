"""The command line: parse, call, print. Each command is a small module that is only imported when it is named.

Errors a user can put right are one sentence on stderr and an exit code: 2 for bad input, 3 for a refused budget, 4 for a
failed audit or verification. A traceback appears under ``--debug`` only.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence

from sordino.errors import SordinoError, SordinoWarning

# command -> (module with add_parser and run, what it is for)
COMMANDS = {
    "train": ("sordino.cli.train", "train a model under a privacy budget"),
    "predict": ("sordino.cli.predict", "use the model of a finished run on new data"),
    "export": ("sordino.cli.export", "the model of a finished run as ONNX, and its model card"),
    "plan": ("sordino.cli.plan", "what a budget means before there is any data: noise, signal, what to change"),
    "account": ("sordino.cli.account", "epsilon, multiplier or rounds from the other two"),
    "verify": (
        "sordino.cli.verify",
        "check a finished run: hashes, ledger, plan, and its epsilon by another accountant",
    ),
    "attack": ("sordino.cli.attack", "membership inference against a finished run, beside what its proof allows"),
    "attacks": ("sordino.cli.attacks", "the attacks, their papers, and what each knows"),
    "audit": ("sordino.cli.audit", "what the canaries of a run show about its epsilon, from below"),
    "conformance": ("sordino.cli.conformance", "the library audits itself, and catches planted bugs"),
    "serve": ("sordino.cli.serve", "run a plan with data holders on other machines"),
    "join": ("sordino.cli.join", "take part with the records on this machine"),
    "certs": ("sordino.cli.certs", "make certificates and keys for training across machines"),
    "methods": ("sordino.cli.methods", "the methods, their papers, and whether they are private as published"),
    "data": ("sordino.cli.data", "list and fetch data sets; look at your own, and describe it"),
    "report": ("sordino.cli.report", "draw the report of a run again"),
    "metanet": ("sordino.cli.metanet", "pre-train the controllers of FedMAP"),
}

ABOUT = """Train one model across many data holders with adaptive differential privacy, proven and enforced.

Start with `sordino train`: it trains on the embedded digits and ends with the privacy statement."""


def parser(command: str | None) -> argparse.ArgumentParser:
    """The whole parser, with options only of the command that was named: the others need not be imported."""
    top = argparse.ArgumentParser(
        prog="sordino", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    top.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, summary) in COMMANDS.items():
        if name == command:
            importlib.import_module(module).add_parser(commands)
        else:
            commands.add_parser(name, help=summary, add_help=False)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    command = next((w for w in words if not w.startswith("-")), None)
    top = parser(command)
    args = top.parse_args(words)
    if args.version:
        from importlib.metadata import version

        print(f"sordino {version('sordino')}")
        return 0
    if args.command is None:
        top.print_help()
        return 0
    warnings.showwarning = _show  # type: ignore[assignment]
    try:
        return args.func(args)
    except SordinoError as error:
        if debug:
            raise
        print(f"sordino: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        print("sordino: stopped.", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if debug:
            raise
        print(f"sordino: {error.name} is not installed; install it with: pip install 'sordino[all]'.", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _show(message: Warning, category: type[Warning], *place: object) -> None:
    """Warnings of ours as a sentence; those of libraries only where someone asked for them."""
    if issubclass(category, SordinoWarning):
        print(f"sordino: warning: {message}", file=sys.stderr)


def run() -> None:
    """The installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
