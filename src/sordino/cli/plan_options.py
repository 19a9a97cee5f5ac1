"""Options of the command line that are settings of a plan: a preset, a plan file, and every field by its name."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from sordino import presets
from sordino.cli.numbers import count, number
from sordino.data.schema import TASKS
from sordino.defences import DEFENCES
from sordino.errors import BadInput, one_of
from sordino.federation.averaging import AVERAGES
from sordino.federation.held_out import FAIRNESS
from sordino.federation.server import SCHEDULES, STEPS
from sordino.plain import Json
from sordino.plan import read_toml
from sordino.plan_checks import MECHANISMS, OPTIMIZERS, PARTITIONS, WEIGHTS
from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit, Variant

# (name, type, choices, help)
FIELDS: tuple[tuple[str, type, tuple[str, ...] | None, str], ...] = (
    (
        "data",
        str,
        None,
        "data set, a table, or a folder with one file per client (./mnist, if its name is that of a set)",
    ),
    ("clients", int, None, "how many clients share the data"),
    ("partition", str, PARTITIONS, "how the data is divided among the clients"),
    ("alpha", float, None, "Dirichlet concentration: with a small one clients differ much, with a large one little"),
    ("model", str, None, "network; auto picks the usual one for the data; or your own, as module:function"),
    ("classes", int, None, "how many classes there are, if the data does not say"),
    ("partition_seed", int, None, "seed of the partition alone (default: --seed)"),
    ("client_column", str, None, "the column of a table that names the client of each row"),
    ("label", str, None, "the column to predict (default: label, or the last one); several with commas between"),
    (
        "test",
        str,
        None,
        "a public test file; holdout=0.1: a share of the records, never trained on, whose figures are released with noise; none",
    ),
    ("ignore", str, None, "columns of a table that are left out (names, numbers of rows, dates), with commas between"),
    (
        "fairness",
        str,
        FAIRNESS,
        "how clients are compared: on public test splits; or noisy: on held-out records (--test holdout=0.1), with noise, charged",
    ),
    ("schema", str, None, "schema.toml: scale and meaning of columns; `sordino data describe` writes one"),
    ("task", str, TASKS, "what the model predicts"),
    ("method", str, None, "see `sordino methods`; or your own, as module:object"),
    ("variant", str, tuple(Variant), "certified: made private; published: as the paper prints it"),
    ("mechanism", str, MECHANISMS, "kind of noise"),
    ("bound", float, None, "first clipping threshold; public"),
    ("metanet", str, None, "weights of FedMAP's controllers, from `sordino metanet pretrain`"),
    ("personal", str, None, "layers that each client keeps for itself (client unit, fedavg); without a name: the head"),
    (
        "defence",
        str,
        tuple(DEFENCES),
        "a heuristic that changes updates before clipping (client unit, fedavg); no guarantee",
    ),
    ("unit", str, tuple(Unit), "what is protected"),
    ("observer", str, tuple(Observer), "against whom the unit is protected"),
    ("relation", str, tuple(Relation), "neighbouring relation (by default it follows from the sampling)"),
    (
        "prepare",
        str,
        None,
        "how records become model input, with statistics that are part of the budget: standard, features, fourier",
    ),
    ("epsilon", float, None, "the budget; the noise is calibrated to it"),
    ("delta", float, None, "the probability that the guarantee leaves out"),
    ("multiplier", float, None, "noise over bound, instead of or besides epsilon"),
    ("sampling", str, tuple(Sampling), "how the units of a round are drawn"),
    ("cohort", int, None, "clients expected in a round"),
    (
        "survivors",
        int,
        None,
        "the fewest clients that stay in a round; they share the noise (secagg-server; default: all; fedmap: 2)",
    ),
    ("weights", str, WEIGHTS, "how clients are weighted (client unit)"),
    ("weight_cap", int, None, "a client with this many examples, or more, has full weight; public"),
    ("rounds", int, None, "how many rounds"),
    ("local_epochs", int, None, "passes over a client's data in a round"),
    ("batch_size", int, None, "mini-batch; with the example unit pooled, records expected in a round"),
    ("lr", float, None, "learning rate of gradient steps"),
    ("optimizer", str, OPTIMIZERS, "optimizer of the clients"),
    ("momentum", float, None, "momentum of the clients"),
    ("server_optimizer", str, OPTIMIZERS, "optimizer of the server"),
    ("server_lr", float, None, "learning rate of the server"),
    ("server_momentum", float, None, "momentum of the server"),
    ("steps", str, STEPS, "gradient steps go along the noisy mean; or scaled: along mean / bound"),
    (
        "lr_schedule",
        str,
        SCHEDULES,
        "size of the server's steps: constant, or decay (a warm-up, then in a line towards 0)",
    ),
    (
        "average",
        str,
        AVERAGES,
        "the model is the last iterate (none), or the mean of all if the second half of the rounds only added noise (settled)",
    ),
    ("canaries", int, None, "how many canaries to insert, for `sordino audit`"),
    ("canary", str, None, "kind of canary: turning, steady, mislabelled or random"),
    ("seed", int, None, "seed of all random draws"),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Preset, plan file, fields, and the options of a rule."""
    parser.add_argument(
        "--preset", metavar="NAME", help=f"the setting of a paper's experiment: {', '.join(presets.names())}"
    )
    parser.add_argument("--plan", metavar="FILE", help="a plan.toml; options override it")
    for name, kind, choices, text in FIELDS:
        metavar = "{" + ",".join(choices) + "}" if choices else kind.__name__.upper()
        flag = f"--{name.replace('_', '-')}"
        if name == "personal":
            parser.add_argument(flag, metavar="LAYERS", nargs="?", const="head", help=text)
        else:
            parser.add_argument(flag, metavar=metavar, help=text)
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a setting of the method's rule"
    )


def given_in(args: argparse.Namespace) -> Json:
    """Options over the plan file over the preset."""
    given = (presets.read(args.preset) if args.preset else {}) | (read_toml(args.plan) if args.plan else {})
    read: dict[type, Callable[[argparse.Namespace, str], object]] = {int: count, float: number, str: getattr}
    given |= {name: value for name, kind, _, _ in FIELDS if (value := read[kind](args, name)) is not None}
    if args.secure:
        given["secure"] = True
    if args.recipe is not None:
        given["recipe"] = args.recipe
    if args.scale is not None:
        one_of(("private",), scale=args.scale)
        if args.prepare is not None:
            raise BadInput("--scale private is --prepare standard; give one of the two.")
        given["prepare"] = "standard"
    options = dict(given.get("options", {}))
    for pair in args.option:
        name, sign, value = pair.partition("=")
        try:
            options[name] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise BadInput(f"--option takes NAME=NUMBER, not {pair!r}.")
    if options:
        given["options"] = options
    return given
