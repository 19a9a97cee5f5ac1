"""docs/performance.md, from what the other benchmarks left in results/: speed, scale, w3, step and accounting."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INTRO = """# Performance

Made by `make bench`; do not edit. Ratios are medians over {passes} in which all contenders took turns on one machine
({machine}); absolute seconds only compare within a table. *Times Sordino* is how many times as long a contender takes; the bar
to reach is given where there is one (for the limits it is the largest allowed share, turned round).

Sordino runs through the public `sordino.train` with ledger, filter, metrics and checkpoints on; the peers run bare. *Like for
like* is a hand-written loop with two processes, channels-last, pooling before ReLU and a tuned allocator. The limit is the
workload's multiplications at the rate of a large matrix product on both cores; Sordino can come close to it because the
backward pass of a pooled convolution has a gradient at one position in eight, and the kernel skips the rest.

Peak MB are those of all processes of a contender together; a page that several of them share is counted once (`memory.py`)."""


CLIPPING = "### Per-example clipping, model by model"
# What each model of w3 is to reach, in times Sordino, and the most memory, in times that of plain training.
BARS, MEMORY = {"plain": 1 / 1.5, "Opacus ghost": 2.0, "Opacus hooks": 4.0}, 1.5


def found(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def memory(speed: dict[str, Any]) -> str:
    """Peak memory of private training against training without privacy."""
    peaks = {line["contender"]: line["peak_mb"] for line in speed["workloads"]["w3"]["table"]}
    times = peaks["Sordino"] / peaks["no privacy"]
    return f"Peak memory of W3 is {times:.2f} times that of training without privacy (to reach: at most {MEMORY})."


def share_of_round(speed: dict[str, Any], scale: dict[str, Any]) -> str:
    (round,) = (line["seconds"] for line in speed["workloads"]["w1"]["table"] if line["contender"] == "Sordino")
    parts = (f"{100 * s / round:.1f}% with {kind} noise" for kind, s in scale["privacy"].items())
    return f"Clip, noise, account and ledger take of a round of W1: {', '.join(parts)}."


def clipping(w3: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for row in w3["rows"] for name in row["ratio"] if name != "Sordino"))
    lines = [
        CLIPPING,
        "",
        f"Times Sordino, processor time of {w3['threads']} thread. `error` is against single backward passes; MB are those of a fresh",
        "process at its peak (about 230 of them PyTorch itself).",
        "",
        "| model | ms a step | " + " | ".join(names) + " | error | MB | MB plain |",
        "|---" * (len(names) + 5) + "|",
    ]
    for row in w3["rows"]:
        cells = [f"{row['ratio'][name]:.2f}" if name in row["ratio"] else "-" for name in names]
        lines.append(
            f"| {row['model']} | {1e3 * row['seconds']['Sordino']:.1f} | {' | '.join(cells)} | {row['error']:.0e} "
            f"| {row['peak_mb']['Sordino']:.0f} | {row['peak_mb']['plain']:.0f} |"
        )
    return "\n".join(lines)


def short(w3: dict[str, Any]) -> str:
    """The bars that a model does not reach, or that all do."""
    missed = [
        f"{row['model']} against {who} ({row['ratio'][who]:.2f}, to reach {bar:.2f})"
        for row in w3["rows"]
        for who, bar in BARS.items()
        if row["ratio"].get(who, bar) < bar
    ]
    missed += [
        f"memory of {row['model']}"
        for row in w3["rows"]
        if row["peak_mb"]["Sordino"] > MEMORY * row["peak_mb"]["plain"]
    ]
    return f"Not reached: {'; '.join(missed)}." if missed else "All bars are reached."


def profiled(step: dict[str, Any]) -> str:
    lines = ["### Where the time of a step goes", "", "By PyTorch's profiler, one core (`step.py`).", ""]
    lines += ["| step | shares |", "|---|---|"]
    for name, shares in step.items():
        lines.append(f"| {name} | {', '.join(f'{what} {100 * share:.0f}%' for what, share in shares.items())} |")
    small, large = (step[name]["the rest"] for name in ("W2, batch 10", "W1, batch 64"))
    lines += [
        "",
        f"At batch 10 {small:.0%} of a step are many small operations (at batch 64 {large:.0%}), whose cost does not shrink with the "
        "batch: W2 is nearer to its peers than W1. What is left of ResNet-18 is convolutions and products "
        "of the library at close to the machine's rate.",
    ]
    return "\n".join(lines)


def calibrating(accounting: dict[str, Any]) -> str:
    lines = [
        "### Budget to multiplier",
        "",
        "Against `dp_accounting.calibrate_dp_mechanism` over privacy loss distributions. *Above* is how much larger our multiplier is.",
        "",
        "| rate | rounds | epsilon | delta | library s | Sordino s | times faster | above |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['rate']:g} | {r['rounds']} | {r['epsilon']:g} | {r['delta']:g} | {r['library_seconds']:.2f} "
        f"| {r['seconds']:.3f} | {r['speedup']:.0f} | {100 * r['above']:.3f}% |"
        for r in accounting["settings"]
    ]
    return "\n".join(lines)


def only_clipping(w3: dict[str, Any]) -> None:
    """Put the table by model on the page again, measured by itself; the rest of the page stays."""
    apart = "Measured again by itself (`w3.py`), later than the other tables and on another machine."
    path = HERE.parent / "docs" / "performance.md"
    text = path.read_text()
    start = text.index(CLIPPING)
    rest = text.index("\n### ", start)
    path.write_text(text[:start] + "\n\n".join([clipping(w3), short(w3), apart]) + "\n" + text[rest:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-clipping", action="store_true", help="the table by model alone, from results/w3.json")
    if parser.parse_args().only_clipping:
        w3 = found("w3")
        assert w3 is not None, "run benchmarks/w3.py --json > benchmarks/results/w3.json first"
        return only_clipping(w3)
    speed, scale, w3, step, accounting = map(found, ("speed", "scale", "w3", "step", "accounting"))
    assert speed is not None, "run benchmarks/run.py first"
    least = min(len(one["passes"]) for one in speed["workloads"].values())
    passes = "one pass" if least == 1 else f"{least} passes"
    parts = [INTRO.format(machine=speed["machine"], passes=passes), speed["text"]]
    if "w3" in speed["workloads"]:
        parts.append(memory(speed))
    if w3 is not None:
        parts += [clipping(w3), short(w3)]
    if step is not None:
        parts.append(profiled(step))
    if scale is not None:
        parts += [scale["text"], share_of_round(speed, scale)]
    if accounting is not None:
        parts.append(calibrating(accounting))
    (HERE.parent / "docs" / "performance.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
