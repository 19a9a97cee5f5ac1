"""``sordino metanet pretrain``: the weights of FedMAP's controllers, from synthetic sequences alone."""

from __future__ import annotations

import argparse
import json
import sys
import time

from sordino.errors import BadInput

EXAMPLES = """examples:
  sordino metanet pretrain --out metanet.safetensors                    as the weights that ship with the package
  sordino metanet pretrain --out mine.safetensors --backbone bert-tiny/  a local BERT checkpoint as the encoder
  sordino metanet pretrain --out paper.safetensors --lr 1e-4 --plain-error --steps 60000    the paper's values
  sordino train --method fedmap --metanet mine.safetensors ...           use them"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "metanet",
        help="pre-train the controllers of FedMAP",
        description="Pre-train MetaNet, the controller of FedMAP, on synthetic sequences of gradient statistics.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["pretrain"], help="what to do")
    parser.add_argument("--out", required=True, help="safetensors file to write")
    parser.add_argument(
        "--backbone", help="local BERT checkpoint (safetensors, Hugging Face layout) as the frozen encoder"
    )
    parser.add_argument("--seed", type=int, default=None, help="seed of all random draws (default 42)")
    parser.add_argument("--sequences", type=int, default=None, help="how many synthetic sequences (default 20000)")
    parser.add_argument("--steps", type=int, default=None, help="the most steps for each controller (default 3000)")
    parser.add_argument("--encoder-steps", type=int, default=None, help="steps for the encoder (default 1000)")
    parser.add_argument(
        "--lr", type=float, default=None, help="learning rate of Adam (default 0.002; the paper's is 0.0001)"
    )
    plain = (
        "measure the published controller's error in C and sigma, as the paper prints it, and not in their logarithms"
    )
    parser.add_argument("--plain-error", action="store_true", help=plain)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Pre-train the controllers and save their weights."""
    from pathlib import Path

    from sordino.schemes.fedmap.metanet.net import save
    from sordino.schemes.fedmap.metanet.pretrain import Settings, pretrain

    given = {
        "seed": args.seed,
        "sequences": args.sequences,
        "most_steps": args.steps,
        "first_steps": args.encoder_steps,
        "lr": args.lr,
        "logarithms": False if args.plain_error else None,
    }
    settings = Settings(**{name: value for name, value in given.items() if value is not None})
    out = Path(args.out)
    if not out.parent.is_dir():
        raise BadInput(f"{out} cannot be written (there is no folder {out.parent}); make it, or choose another --out.")
    started = time.perf_counter()
    outcome = pretrain(settings, args.backbone, None if args.json else _tell)
    try:
        save(outcome.nets, out, outcome.facts)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}); choose another --out.") from None
    net = outcome.nets["certified"]
    told = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "parameters": sum(p.numel() for p in net.parameters()),
        "trained": sum(p.numel() for p in net.trained),
        "errors": outcome.facts["errors"],
        "seconds": round(time.perf_counter() - started, 1),
    }
    if args.json:
        print(json.dumps(told))
    else:
        print(
            f"{told['parameters']:,} parameters, {told['trained']:,} of them trained; mean squared error "
            f"{told['errors']['certified']:.3f} (certified), {told['errors']['published']:.3f} (published)."
        )
        print(f"{out}: {told['bytes'] / 1e3:.0f} kB, after {told['seconds']} seconds")
    return 0


def _tell(part: str, step: int, error: float) -> None:
    alive = sys.stderr.isatty()  # one line that moves on; elsewhere lines below each other
    text = f"{part:<10} step {step:>6}   error {error:.4f}"
    end = "" if alive and step % 1000 else "\n"
    print(f"\r{text}" if alive else text, end=end, file=sys.stderr, flush=True)
