"""What training across machines costs: exchanges, rounds with and without secure aggregation, and sums of many clients.

    python benchmarks/flower.py exchange                        an empty exchange with 3 nodes, real Flower processes
    python benchmarks/flower.py rounds --dimensions 10000,100000,1000000
    python benchmarks/flower.py sums --clients 10,50,200        secure sums alone, in this process: one client's part, the server's

Real processes run on this machine, over loopback and TLS: three holders, three SuperNodes, a SuperLink and the server share its cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines" / "flower"))

CLASSES = 10


def sums(clients: list[int], dimensions: list[int]) -> None:
    """One member's part and the server's, with one client in twenty lost."""
    from sordino.secagg.collector import Collector, SecureSum
    from sordino.secagg.member import Member
    from sordino.secagg.roster import Roster

    print(
        "| clients | d | set-up, bytes a client | set-up, s a client | masking, s | sent up, MB | opening, s (server) |"
    )
    print("|---|---|---|---|---|---|---|")
    for n in clients:
        for d in dimensions:
            roster = Roster("bench", tuple(range(n)), n // 2 + 1)
            start = time.perf_counter()
            members = {k: Member(roster, k) for k in range(n)}
            collector = Collector(roster)
            adverts = collector.advertised({k: m.advertise() for k, m in members.items()})
            letters = {k: m.share(adverts) for k, m in members.items()}
            for k, mine in collector.shared(letters).items():
                members[k].receive(mine)
            setup = (time.perf_counter() - start) / n
            heads = len(json.dumps(adverts[0].to_json())) * (n + 1) + sum(4 * len(x) + 20 for x in letters[0].values())
            value = np.arange(d)
            start = time.perf_counter()
            masked = members[0].mask(0, value)
            masking = time.perf_counter() - start
            total, lost = SecureSum(collector, 0, d), set(range(1, n, 20))
            for k in range(n):  # the others' vectors are as long, and what is in them changes no time
                if k not in lost:
                    members[k]._masked.add(0)
                    total.add(k, masked)
            survivors = total.closed()
            agreed = {k: members[k].confirm(0, survivors) for k in survivors}
            shares = {k: members[k].reveal(0, agreed) for k in survivors}
            start = time.perf_counter()
            total.open(shares)
            opening = time.perf_counter() - start
            print(
                f"| {n} | {d:,} | {heads:,} | {setup:.4f} | {masking:.3f} | {masked.nbytes / 1e6:.2f} | {opening:.3f} |"
            )


def deployed(folder: Path, features: int, run) -> None:
    """Three holders with a few records of so many features, and a server in this process."""
    from machines import Machines

    from sordino.engines.flower import pki
    from sordino.engines.flower.control import Link
    from sordino.engines.flower.grid import OverGrid
    from sordino.engines.flower.pki import Own
    from sordino.engines.flower.seals import SignedServer
    from sordino.engines.flower.serving import nodes_in
    from sordino.engines.flower.transport import Post

    machines = Machines(folder, 3, namespaces=False)
    pki.make(folder / "pki", [machines.address], ["n1", "n2", "n3"])
    (folder / "policy.toml").write_text("secure = false\nepsilon = 1e9\n")
    rng = np.random.Generator(np.random.PCG64(0))
    for k in (1, 2, 3):
        x = rng.normal(size=(CLASSES, features)).astype(np.float32)
        (folder / f"data{k}").mkdir()
        np.savez(folder / f"data{k}" / "records.npz", x=x, y=np.arange(CLASSES))
        machines.join(k, "--policy", "policy.toml")
    certs = folder / "pki" / "server"
    nodes = nodes_in(certs)
    link = Link(certs, machines.address, machines.port, folder / "flower", nodes)
    try:
        link.open()
        post = Post(OverGrid(link.grid, link.ids), SignedServer(Own.server(certs), nodes), nodes)
        post.certificates = nodes
        machines.until(lambda: len(post.present()) == 3, "the nodes' arrival")
        run(post)
    finally:
        link.close()
        machines.close()


def exchange(count: int) -> None:
    from sordino.engines.flower.wire import Parcel

    def run(post) -> None:
        times = []
        for _ in range(count + 2):
            start = time.perf_counter()
            assert len(post.ask({k: Parcel("hello") for k in range(3)}, 60.0)) == 3
            times.append(time.perf_counter() - start)
        times = times[2:]
        print(
            f"empty exchange, 3 nodes: median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f}, n={count}"
        )

    with tempfile.TemporaryDirectory() as folder:
        deployed(Path(folder), 10, run)


def rounds(dimensions: list[int], count: int) -> None:
    from sordino import Plan
    from sordino.engines.flower.federate import federate

    print("| d | secure aggregation | s a round (median) | exchanges | sent down, MB a client | sent up, MB a client |")
    print("|---|---|---|---|---|---|")
    for d in dimensions:
        features = max(1, (d - CLASSES) // CLASSES)

        def run(post, features=features) -> None:
            for observer in ("server", "secagg-server"):
                plan = Plan(data="bench", clients=3, model="linear", method="dp-fedavg", unit="client", sampling="none",
                            observer=observer, multiplier=1.0, rounds=count, batch_size=CLASSES)  # fmt: skip
                asked, inner = [0], post.ask
                post.ask = lambda *a, inner=inner, asked=asked: (asked.__setitem__(0, asked[0] + 1), inner(*a))[1]
                post.sent = post.received = 0
                with tempfile.TemporaryDirectory() as out:
                    result = federate(post, plan, Path(out), classes=CLASSES, certificates=post.certificates)
                post.ask = inner
                seconds = statistics.median(row["seconds"] for row in result.metrics)
                yes = "yes" if observer == "secagg-server" else "no"
                size, each = features * CLASSES + CLASSES, 3 * count * 1e6
                print(
                    f"| {size:,} | {yes} | {seconds:.2f} | {(asked[0] - 3) / count:.1f} "
                    f"| {post.sent / each:.2f} | {post.received / each:.2f} |"
                )

        with tempfile.TemporaryDirectory() as folder:
            deployed(Path(folder), features, run)


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(float(word)) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exchange", "rounds", "sums"))
    parser.add_argument("--clients", type=numbers, default=[10, 50, 200])
    parser.add_argument("--dimensions", type=numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--count", type=int, default=10, help="exchanges or rounds")
    args = parser.parse_args()
    if args.what == "sums":
        sums(args.clients, args.dimensions)
    elif args.what == "exchange":
        exchange(args.count)
    else:
        rounds(args.dimensions, args.count)


if __name__ == "__main__":
    main()
