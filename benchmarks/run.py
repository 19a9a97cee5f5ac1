"""Run the contenders in turn, several times over, and print how much faster or slower each is than Sordino.

Ratios are taken within a pass, so that a machine that is slow for a while is slow for all; the table shows their median and
range over the passes. Before them every contender runs once, untimed, to watch its memory (`memory`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import memory
import numpy as np
import workloads

HERE = Path(__file__).parent
WATCHED = 2  # rounds; memory does not grow with their number
PEERS = {
    "torch": [],
    "opacus": ["opacus==1.6.0"],
    "flower": ["flwr[simulation]==1.41.0"],
    "pfl": ["pfl[pytorch]==0.6.0"],
}
# (environment, script, variant); the environment "ours" is the one that runs this file.
CONTENDERS = {
    "w1": [("ours", "ours", ""), ("flower", "flower", ""), ("pfl", "pfl", ""), ("torch", "loop", ""), ("torch", "alike", ""),
           ("torch", "limit", ""), ("ours", "ours", "one")],
    "w3": [("ours", "ours", ""), ("opacus", "opacus", "ghost"), ("opacus", "opacus", "hooks"), ("torch", "plain", ""),
           ("torch", "plain", "channels-last"), ("torch", "limit", "")],
}  # fmt: skip
CONTENDERS["w2"] = CONTENDERS["w1"]
# What is to be reached: at least this many times faster than (or, for the limits, at most this many times slower).
BARS = {
    "w1": {
        "Flower": 3.0,
        "pfl-research": 2.0,
        "like for like": 1.0,
        "limit (GEMM)": 1 / 2.2,
        "Sordino, one worker": 1.7,
    },
    "w2": {"Flower": 6.0, "pfl-research": 2.0, "like for like": 1.0, "Sordino, one worker": 1.7},
    "w3": {"Opacus ghost": 2.0, "Opacus hooks": 4.0, "no privacy": 1 / 1.5},
}


def environments(folder: Path, wanted: set[str]) -> dict[str, str]:
    """A virtual environment for each wanted peer; made once."""
    found = {"ours": sys.executable}
    for name, packages in PEERS.items():
        if name not in wanted:
            continue
        python = folder / name / "bin" / "python"
        if not (folder / name / "ready").exists():
            print(f"installing {name} ...", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "torch==2.13.0", "numpy"], check=True)
            if packages:
                subprocess.run([*pip, *packages], check=True)
            (folder / name / "ready").touch()
        found[name] = str(python)
    return found


def measure(
    python: str, script: str, variant: str, work: Path, rounds: int, watch: bool = False, source: Path | None = None
) -> dict | None:
    """What a contender says of itself; if asked to watch, with its peak memory. `source`: another checkout of Sordino."""
    home = HERE if source is None else source.resolve() / "benchmarks"
    command = [
        python,
        str(home / "contenders" / f"{script}.py"),
        str(work),
        "--rounds",
        str(rounds),
        "--variant",
        variant,
    ]
    if watch:
        said, complaint, peak = memory.peak(command, 900)
    else:
        there = None if source is None else os.environ | {"PYTHONPATH": str(source.resolve() / "src")}
        started = _processor_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=there)
        said, complaint, peak = done.stdout, done.stderr, None
        processor = _processor_seconds() - started
    lines = [line for line in said.splitlines() if line.startswith('{"contender"')]
    if not lines:
        print(f"{script} {variant} failed:\n{complaint[-1500:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1]) | ({"processor": processor} if peak is None else {"peak_mb": round(peak)})


def _processor_seconds() -> float:
    """Of all contenders so far, start-up included: steadier than a clock where others use the machine too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(passes: list[dict[str, dict]], peaks: dict[str, float], bars: dict[str, float]) -> list[dict]:
    """One line per contender: median seconds, and how many times as long as ours it took, with the range."""
    lines = []
    for name in passes[0]:
        seconds = [p[name]["seconds"] for p in passes if name in p]
        ratios = [p[name]["seconds"] / p["Sordino"]["seconds"] for p in passes if name in p and "Sordino" in p]
        bar = bars.get(name)
        line = {
            "contender": name,
            "seconds": float(np.median(seconds)),
            "ratio": float(np.median(ratios)),
            "range": [float(min(ratios)), float(max(ratios))],
            "bar": bar,
            "reached": None if bar is None else bool(np.median(ratios) >= bar),
            "peak_mb": peaks.get(name, float("nan")),
        }
        lines.append(line)
    return lines


def text(workload: str, lines: list[dict]) -> str:
    out = [
        f"### {workload.upper()}",
        "",
        "| contender | seconds | times Sordino | range | to reach | | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in sorted(lines, key=lambda row: row["seconds"]):
        low, high = line["range"]
        bar = "" if line["bar"] is None else f"{line['bar']:.2f}"
        mark = "" if line["reached"] is None else "reached" if line["reached"] else "**short**"
        name, seconds, ratio = line["contender"], line["seconds"], line["ratio"]
        out.append(
            f"| {name} | {seconds:.3f} | {ratio:.2f} | {low:.2f} to {high:.2f} | {bar} | {mark} | {line['peak_mb']:.0f} |"
        )
    return "\n".join(out)


def _line(workload: str, row: dict) -> str:
    return f"{workload} {row['contender']}: {row['seconds']:.3f} s; {row['processor']:.1f} s of processors in all"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=sorted(CONTENDERS), action="append")
    parser.add_argument(
        "--before", type=Path, help="another checkout of Sordino, built in place, that takes turns with this one"
    )
    parser.add_argument("--peers", help="only these environments of peers, such as torch,opacus (default: all)")
    parser.add_argument("--venvs", type=Path, default=HERE / "venvs", help="where the peers' environments are")
    args = parser.parse_args()
    wanted = {"ours", *(PEERS if args.peers is None else filter(None, args.peers.split(",")))}
    pythons = environments(args.venvs, wanted)
    results = HERE / "results"
    workloads.write(results / "work", args.rounds)
    report: dict = {
        "machine": f"{platform.processor() or platform.machine()}, python {platform.python_version()}",
        "workloads": {},
    }
    shown = []
    for workload in args.only or sorted(CONTENDERS):
        rounds = args.rounds if workload != "w3" else 4
        work, watched = results / "work" / f"{workload}.npz", []
        contenders = [one for one in CONTENDERS[workload] if one[0] in wanted]
        for environment, script, variant in contenders if args.before is None else []:
            watched.append(measure(pythons[environment], script, variant, work, WATCHED, watch=True))
        peaks = {row["contender"]: row["peak_mb"] for row in watched if row is not None}
        passes: list[dict[str, dict]] = []
        for _ in range(args.passes):
            measured = {}
            if args.before is not None:
                before = measure(pythons["ours"], "ours", "", work, rounds, source=args.before)
                if before is not None:
                    measured["Sordino before"] = before | {"contender": "Sordino before"}
                    print(_line(workload, measured["Sordino before"]), file=sys.stderr)
            for environment, script, variant in contenders:
                row = measure(pythons[environment], script, variant, work, rounds)
                if row is not None:
                    measured[row["contender"]] = row
                    print(_line(workload, row), file=sys.stderr)
            passes.append(measured)
        lines = table(passes, peaks, BARS[workload])
        report["workloads"][workload] = {"passes": passes, "table": lines}
        shown.append(text(workload, lines))
    report["text"] = "\n\n".join(shown)
    (results / ("speed.json" if args.before is None else "before.json")).write_text(json.dumps(report, indent=2))
    print(report["text"])


if __name__ == "__main__":
    main()
