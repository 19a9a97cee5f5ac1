"""``sordino train``: from options or a plan file to a trained model, its statement and its report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sordino.cli import plan_options
from sordino.cli.numbers import count
from sordino.errors import BadInput
from sordino.plain import Json
from sordino.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from sordino.engines import EngineOptions
    from sordino.federation.population import Federation
    from sordino.recipes import Choice

EXAMPLES = """examples:
  sordino train                                                    the embedded digits, epsilon 4, example unit
  sordino train --data fashion-mnist --epsilon 3 --method dp-fedavg
  sordino train --data fashion-mnist --model linear --clients 1000 --cohort 100 --unit client --observer public --epsilon 8
  sordino train --method fedavg --data mnist                       no privacy: the baseline
  sordino train --preset adact-cifar10 --epsilon 8                 a paper's experiment, as published
  sordino train --plan plan.toml --seed 2                          a plan file; options override it
  sordino train --resume runs/digits-adact-1                       go on with a run that was cut off
  sordino train --data ./hospitals --model linear                  your own folder, one file per client
  sordino train --data table.csv --client-column user --label class --test test.csv"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model under a privacy budget",
        description="Train a model under a privacy budget. Without options: digits, 10 clients, epsilon 4, example unit.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan_options.add_to(parser)
    bare = "train the same network on the same data without clipping and noise, to measure the price of privacy"
    parser.add_argument("--without-privacy", action="store_true", help=bare)
    price = (
        "also train without privacy, and show what privacy costs; no epsilon covers that figure, so do not publish it"
    )
    parser.add_argument("--price", action="store_true", help=price)
    named = (
        "settings under a name: frontier (pictures, signals and tables with classes: features that need no data, and a linear head), "
        "none (a network), or auto: frontier where it was measured to do better (default auto)"
    )
    parser.add_argument("--recipe", metavar="NAME", help=named)
    parser.add_argument(
        "--secure", action="store_true", default=None, help="draw noise from the secure source of the operating system"
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="where the model is trained: cpu (default), cuda, cuda:1, mps"
    )
    parser.add_argument("--engine", default="auto", help="auto, in-process or workers; changes speed only")
    parser.add_argument("--workers", default=0, help="worker processes (0: one per core)")
    alone = "never batch pooled records of different clients together: slower; gives bit-identical results to a Flower deployment"
    parser.add_argument("--isolate-clients", action="store_true", help=alone)
    often = "measure accuracy once in so many rounds (0: about twenty times in a run)"
    parser.add_argument("--evaluate-every", default=0, metavar="ROUNDS", help=often)
    keep = "keep a released model once in so many rounds, for attacks that watch several rounds"
    parser.add_argument("--keep-models", default=0, metavar="ROUNDS", help=keep)
    parser.add_argument("--out", metavar="FOLDER", help="run folder (default: a new one under runs/)")
    parser.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    counts = (
        "file that adds up what all runs on these records cost (default: beside your own files; none: nothing counts)"
    )
    parser.add_argument("--account", metavar="FILE", help=counts)
    parser.add_argument(
        "--scale",
        metavar="{private}",
        help="private: scale columns by statistics that are released with noise and charged",
    )
    parser.add_argument("--tensorboard", action="store_true", help="also write TensorBoard scalars into the run folder")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Train as the options say, and print the statement or one JSON object."""
    from sordino.assembly import assemble, prepare
    from sordino.engines import EngineOptions
    from sordino.federation.folder import RunFolder, claim
    from sordino.recipes import twin_of

    choices: tuple[Choice, ...]
    if args.resume is not None:
        _alone(args)
        folder = RunFolder.reopen(args.resume)
        model, federation, plan = assemble(Plan.load(folder.plan))
        choices = ()
        out: Path | None = folder.path
    else:
        model, federation, plan, choices = prepare(plan_options.given_in(args))
        if args.without_privacy:
            model, federation, plan, choices = prepare(twin_of(plan_options.given_in(args), plan))
        out = Path(args.out) if args.out else None
    workers, every, keep = (count(args, name) or 0 for name in ("workers", "evaluate_every", "keep_models"))
    options = EngineOptions(args.engine, workers, every, keep_models=keep, isolate_clients=args.isolate_clients)

    from sordino.cli.progress import bar
    from sordino.engines.allocator import keep_memory
    from sordino.methods import RuleContext
    from sordino.report.run import compared
    from sordino.report.summary import summary
    from sordino.training import train
    from sordino.verify import after_training

    keep_memory()
    if args.device is not None:
        from sordino.clients.devices import device

        model = model.to(device(args.device))
    plan.method_spec.build(RuleContext(plan, (1,), 1.0))  # a wrong option is refused before anything is printed
    if not (args.quiet or args.json or args.resume):
        print(chosen_text(choices))
        _warn(plan, model, federation)
    if out is None and args.tensorboard:
        out = claim(plan)  # its scalars lie there from the start
    with bar(plan, quiet=args.quiet or args.json, tensorboard=args.tensorboard, out=out) as watch:
        result = train(
            model,
            federation,
            plan,
            out=out,
            resume=args.resume is not None,
            options=options,
            on_round=watch,
            account=_account(args.account, plan),
        )
    beside = {}
    if args.price and (exact := _without_privacy(twin_of(plan_options.given_in(args), plan), options)) is not None:
        beside["without_privacy"] = exact
        compared(result.folder, beside)
    if args.json:
        print(json.dumps(result.to_json() | beside | {"chosen": {c.name: c.reason for c in choices}}))
    else:
        print(summary(result, beside))
        print(after_training(result.folder))
        if result.stopped:
            print(f"Stopped    {result.stopped}", file=sys.stderr)
    return 3 if result.stopped else 0


def _without_privacy(given: Json, options: EngineOptions) -> float | None:
    """Accuracy of the same network without privacy. Its weights are not kept: no epsilon covers them."""
    from tempfile import TemporaryDirectory

    from sordino.assembly import prepare
    from sordino.training import train

    model, federation, plan, _ = prepare(given)
    with TemporaryDirectory() as folder:
        return train(model, federation, plan, out=Path(folder) / "twin", options=options).accuracy


def _account(named: str | None, plan: Plan) -> Path | None:
    """Records of one's own are counted beside them; data sets that everybody has are counted only if asked for."""
    from sordino.privacy.data_account import beside

    if named is not None:
        return None if named == "none" else Path(named)
    path = Path(plan.data)
    return beside(path) if path.exists() and os.access(path if path.is_dir() else path.parent, os.W_OK) else None


def _alone(args: argparse.Namespace) -> None:
    """A run goes on as it began: settings beside --resume would be ignored."""
    asked = vars(args)
    given = [name for name, *_ in plan_options.FIELDS if asked[name] is not None]
    alone = ("preset", "plan", "out", "option", "recipe", "secure", "without_privacy", "price")
    given += [name for name in alone if asked[name]]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"--resume goes on with the run's own plan; leave out {names}, or start another run.")


def _warn(plan: Plan, model: nn.Module, federation: Federation) -> None:
    """Say beforehand where noise will drown the model: what `sordino plan` would have said."""
    if not plan.private or plan.published or plan.method_spec.scheme is not None:
        return
    from sordino.cli.plan import effective_of
    from sordino.planning import planner

    given: Json = {
        "clients": plan.clients,
        "rounds": plan.rounds,
        "cohort": plan.cohort,
        "unit": plan.unit,
        "observer": plan.observer,
        "relation": plan.relation,
        "sampling": plan.sampling,
        "delta": plan.delta,
        "batch_size": plan.batch_size,
        "local_epochs": plan.local_epochs,
    }
    given |= {"multiplier": plan.multiplier} if plan.multiplier is not None else {"epsilon": plan.epsilon}
    given["dimension"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    given["effective"] = effective_of(plan, given["dimension"], federation.classes)
    given["examples"] = max(1, federation.examples // federation.clients)
    forecast = planner.plan(planner.Scenario(**given))
    if forecast.verdict != "plausible":
        print(f"sordino: {forecast.summary} See: sordino plan --help.", file=sys.stderr)


def chosen_text(choices: Sequence[Choice]) -> str:
    """What was chosen, and why, a line each."""
    if not choices:
        return "Chosen     nothing: every setting was given\n"
    heads = ["Chosen", *[""] * len(choices)]
    return "".join(f"{head:<11}{choice}\n" for head, choice in zip(heads, choices))
