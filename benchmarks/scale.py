"""How cost grows: with registered clients, cohort, parameters and workers; what privacy itself costs; how fast it starts.

python benchmarks/scale.py [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from sordino import EngineOptions, Federation, Plan, train

HERE = Path(__file__).parent


def population(clients: int, size: int = 20, features: int = 64) -> Federation:
    def make(k: int):
        rng = np.random.Generator(np.random.PCG64(k))
        return rng.normal(size=(size, features)).astype(np.float32), rng.integers(0, 10, size)

    return Federation.on_demand(clients, make, size, 10)


def seconds(
    clients: int, cohort: int, model: torch.nn.Module, workers: int, rounds: int = 5, features: int = 64
) -> float:
    plan = Plan(
        data="made", clients=clients, cohort=cohort, method="dp-fedavg", unit="client", observer="public",
        multiplier=1.0, rounds=rounds, batch_size=10, lr=0.1,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        speed = EngineOptions(workers=workers, engine="in-process" if workers == 1 else "workers")
        result = train(model, population(clients, features=features), plan, out=folder + "/run", options=speed)
    return float(np.median([row["seconds"] for row in result.metrics[1:]]))


def small(features: int = 64) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(features, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


def peak(code: str) -> tuple[float, float]:
    """Peak memory in MB and seconds of a fresh process that runs `code`."""
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1]) if done.stdout.split() else before / 1024, time.perf_counter() - started


PEAK = """
import resource, scale
scale.seconds({clients}, {cohort}, scale.small(), 1, rounds=3)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def privacy_share() -> dict[str, float]:
    """What clip, noise, account and ledger take of a round of W1 with two workers, from the parts themselves."""
    from sordino.engines.allocator import keep_memory
    from sordino.privacy import events, mechanisms
    from sordino.privacy.bounds import Flat
    from sordino.privacy.filter import ScheduleFilter
    from sordino.privacy.ledger import Ledger
    from sordino.privacy.randomness import source
    from sordino.privacy.release import Private

    keep_memory()  # as workers and server do
    size, each = 80_202, 5  # of a cohort of 10 every worker clips half
    bound, event = Flat(1.0), events.gaussian(1.0)
    grid = mechanisms.FixedPoint.for_bound(bound, 100)
    update = np.linspace(-1, 1, size).astype(np.float32)
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        about = {"unit": "client", "relation": "add-remove", "observer": "public"}
        ledger = Ledger.create(Path(folder) / "l.jsonl", "x", ScheduleFilter([(event, 1000)], 1.0, 1e-5), about)
        for kind in ("seeded", "secure"):
            laps = []
            for t in range(1, 30):
                start = time.perf_counter()
                ledger.request(event, t if kind == "seeded" else t + 100)
                codes = np.zeros(size, np.int64)
                for _ in range(each):
                    codes += grid.encode(bound.clip(update))
                noise = source(0, t, -1, "noise", kind == "secure")
                mechanisms.gaussian(Private(mechanisms.Sum(codes, grid), bound=bound), bound, 1.0, noise)
                laps.append(time.perf_counter() - start)
            out[kind] = float(np.median(laps))
        ledger.close()
    return out


def start_up() -> dict[str, float]:
    def lap(*words: str) -> float:
        laps = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "sordino", *words], capture_output=True, check=True)
            laps.append(time.perf_counter() - start)
        return float(min(laps))

    first = "import tempfile; from sordino.cli.main import main; main(['train','--rounds','1','--json','--out',tempfile.mkdtemp()+'/r'])"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", first], capture_output=True, check=True)
    return {
        "sordino --help": lap("--help"),
        "sordino account": lap("account", "--rate", "0.1", "--rounds", "200", "--multiplier", "1.1", "--delta", "1e-5"),
        "sordino train, one round on digits, start to report": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict = {"clients": {}, "cohort": {}, "memory": {}, "parameters": {}, "workers": {}}
    for n in (10**3, 10**4, 10**5, 10**6):
        found["clients"][n] = seconds(n, 100, small(), 1)
    for m in (50, 100, 200, 400, 800):
        found["cohort"][m] = seconds(10_000, m, small(), 1)
    for m in (50, 800):
        found["memory"][m] = peak(PEAK.format(clients=10_000, cohort=m))[0]
    big = torch.nn.Sequential(torch.nn.Linear(1000, 9900), torch.nn.Tanh(), torch.nn.Linear(9900, 10))
    found["parameters"][sum(p.numel() for p in big.parameters())] = seconds(100, 4, big, 2, rounds=3, features=1000)
    for k in (1, 2):
        wide = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 10))
        found["workers"][k] = seconds(10_000, 400, wide, k)
    found["privacy"] = privacy_share()
    found["start"] = start_up()
    lines = ["### Scale", "", "| what | seconds per round |", "|---|---|"]
    lines += [f"| {n:,} registered clients, cohort 100 | {s:.4f} |" for n, s in found["clients"].items()]
    lines += [f"| cohort {m} of 10,000 clients | {s:.4f} |" for m, s in found["cohort"].items()]
    lines += [f"| {d:,} parameters, cohort 4, two workers | {s:.3f} |" for d, s in found["parameters"].items()]
    lines += [f"| {k} worker{'s' * (k > 1)}, cohort 400 | {s:.4f} |" for k, s in found["workers"].items()]
    lines += [
        f"| clip, noise, account and ledger, 80,202 parameters, cohort 10, {k} noise | {s:.4f} |"
        for k, s in found["privacy"].items()
    ]
    lines += ["", "| start | seconds |", "|---|---|", *(f"| `{k}` | {s:.2f} |" for k, s in found["start"].items())]
    memory = found["memory"]
    lines += ["", f"Peak memory: {memory[50]:.0f} MB at cohort 50, {memory[800]:.0f} MB at cohort 800."]
    found["text"] = "\n".join(lines)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "scale.json").write_text(json.dumps(found, indent=2))
    print(json.dumps({k: v for k, v in found.items() if k != "text"}) if args.json else found["text"])


if __name__ == "__main__":
    main()
