"""What training across machines costs: exchanges, rounds with and without secure aggregation, and sums of many clients.

    python benchmarks/flower.py exchange --nodes 3,10           an empty exchange, real Flower processes
    python benchmarks/flower.py rounds --nodes 3,10 --dimensions 10000,100000,1000000       whole rounds, likewise
    python benchmarks/flower.py rounds --together --nodes 50,200 ...                        the same messages, without processes
    python benchmarks/flower.py sums --clients 10,50,200        secure sums alone, in this process: one client's part, the server's

Real processes all run on this machine, over TLS: n holders, n SuperNodes, a SuperLink and the server share its cores. Where
network namespaces can be made every holder has a host of its own, and bytes are also counted at its network card. `--together`
has all holders in this process: they do and sign all that they would elsewhere, one after another, and only the way is missing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


class Holders:
    """Holders with a few records of so many features, and their keys."""

    def __init__(self, folder: Path, nodes: int, features: int, address: str = "127.0.0.1") -> None:
        from sordino.deployment.serving import nodes_in
        from sordino.engines.flower import pki

        self.folder, self.nodes, self.names = folder, nodes, [f"n{k}" for k in range(1, nodes + 1)]
        pki.make(folder / "pki", [address], self.names)
        self.certificates = nodes_in(folder / "pki" / "server")
        (folder / "policy.toml").write_text("secure = false\nepsilon = 1e9\n")
        rng = np.random.Generator(np.random.PCG64(0))
        for k in range(1, nodes + 1):
            x = rng.normal(size=(CLASSES, features)).astype(np.float32)
            (folder / f"data{k}").mkdir()
            np.savez(folder / f"data{k}" / "records.npz", x=x, y=np.arange(CLASSES))

    def seal(self) -> Any:
        from sordino.engines.flower.pki import Own
        from sordino.engines.flower.seals import SignedServer

        return SignedServer(Own.server(self.folder / "pki" / "server"), self.certificates)

    def wire(self) -> tuple[float, float]:
        """Bytes that went to and came from the holders' hosts, as the network counts them: with TLS, Flower and looks for news."""
        return float("nan"), float("nan")


class Together(Holders):
    """All of them in this process, reached by direct calls."""

    def __enter__(self) -> Together:
        from sordino.engines.flower.holder import Holder
        from sordino.engines.flower.pki import Own
        from sordino.engines.flower.policy import Policy
        from sordino.engines.flower.seals import SignedHolder
        from sordino.engines.flower.transport import Direct, SecureChannel

        policy = Policy.load(self.folder / "policy.toml")
        self.holders = []
        for k, name in enumerate(self.names, 1):
            own = Own.node(self.folder / "pki" / name)
            with np.load(self.folder / f"data{k}" / "records.npz") as data:
                pair = data["x"], data["y"]
            self.holders.append(Holder(name, pair, policy, self.folder / f"state{k}", SignedHolder(own), own))
        self.post = SecureChannel(Direct({h.name: h.handle for h in self.holders}), self.seal(), self.names)
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self.holders:
            holder.close()


class Deployed(Holders):
    """On hosts of their own where namespaces can be made, and a server here.

    Each is a `sordino join`: a resident process with the data, and its SuperNode. The server's SuperLink is a process too.
    """

    def __init__(self, folder: Path, nodes: int, features: int) -> None:
        from machines import Machines, namespaces_work

        self.machines, self._home = Machines(folder, nodes, namespaces_work()), None
        super().__init__(folder, nodes, features, self.machines.address)

    def __enter__(self) -> Deployed:
        from sordino.deployment.control import Link
        from sordino.engines.flower.grid import OverGrid
        from sordino.engines.flower.transport import SecureChannel

        certs, machines = self.folder / "pki" / "server", self.machines
        self._move(f"/var/run/netns/{machines.tag}-0")
        self.link = Link(certs, "0.0.0.0", machines.port, self.folder / "flower", self.certificates)
        try:
            self.link.open()
            self.post = SecureChannel(OverGrid(self.link.grid, self.link.ids), self.seal(), self.certificates)
            for k in range(1, self.nodes + 1):  # a few at a time: each imports PyTorch first
                machines.join(k, "--policy", "policy.toml")
                machines.until(lambda k=k: len(self.post.present()) >= k - 2, f"the arrival of node {k - 2}")
            machines.until(lambda: len(self.post.present()) == self.nodes, "the nodes' arrival")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()
        self._move(None)
        self.machines.close()

    def _move(self, place: str | None) -> None:
        """Into the network namespace of the server's host, and back."""
        if not self.machines.apart:
            return
        import ctypes
        import os

        if place is None:
            if self._home is not None:
                assert ctypes.CDLL(None).setns(self._home, 0) == 0
                os.close(self._home)
            return
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(place, os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(there, 0) == 0, os.strerror(ctypes.get_errno())
        os.close(there)

    def wire(self) -> tuple[float, float]:
        if not self.machines.apart:
            return super().wire()
        down = up = 0
        for k in range(1, self.nodes + 1):
            words = ["ip", "-n", f"{self.machines.tag}-0", "-j", "-s", "link", "show", f"v{k}"]
            (said,) = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
            counted = said.get("stats64") or said["stats"]
            down, up = down + counted["tx"]["bytes"], up + counted["rx"]["bytes"]
        return down, up


def exchange(nodes: list[int], count: int) -> None:
    from sordino.engines.flower.wire import Message

    for n in nodes:
        times = []
        with tempfile.TemporaryDirectory() as folder, Deployed(Path(folder), n, 10) as live:
            for _ in range(count + 2):
                start = time.perf_counter()
                assert len(live.post.ask({k: Message("hello") for k in range(n)}, 60.0)) == n
                times.append(time.perf_counter() - start)
        times = times[2:]
        print(
            f"empty exchange, {n} nodes: median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f}, n={count}",
            flush=True,
        )


def rounds(nodes: list[int], dimensions: list[int], count: int, place: type[Holders]) -> None:
    from sordino import Plan
    from sordino.deployment.federate import federate

    print(
        "| nodes | d | secure aggregation | s a round (median) | exchanges | sent down, MB a client | up | on the wire down | up |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for n in nodes:
        for d in dimensions:
            features = max(1, (d - CLASSES) // CLASSES)
            with tempfile.TemporaryDirectory() as folder, place(Path(folder), n, features) as live:
                for observer in ("server", "secagg-server"):
                    plan = Plan(data="bench", clients=n, model="linear", method="dp-fedavg", unit="client", sampling="none",
                                observer=observer, multiplier=1.0, rounds=count, batch_size=CLASSES)  # fmt: skip
                    seen: list[tuple] = []  # (asked, sent, received, down, up) after each round
                    post, asked, inner = live.post, [0], live.post.ask

                    def counted(*words, inner=inner, asked=asked):
                        asked[0] += 1
                        return inner(*words)

                    def note(_, seen=seen, asked=asked, post=post, live=live):
                        seen.append((asked[0], post.sent, post.received, *live.wire()))

                    post.ask = counted
                    with tempfile.TemporaryDirectory() as out:
                        result = federate(
                            post,
                            plan,
                            Path(out),
                            classes=CLASSES,
                            certificates=live.certificates,
                            on_round=note,
                        )
                    post.ask = inner
                    # The first round also sets up keys, and is left out of the seconds.
                    seconds = statistics.median(row["seconds"] for row in result.metrics[1:])
                    each = [(b - a) / (count - 1) for a, b in zip(seen[0], seen[-1])]
                    columns = " | ".join(f"{x / n / 1e6:.2f}" for x in each[1:])
                    yes = "yes" if observer == "secagg-server" else "no"
                    size = features * CLASSES + CLASSES
                    print(f"| {n} | {size:,} | {yes} | {seconds:.2f} | {each[0]:.1f} | {columns} |", flush=True)


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(float(word)) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exchange", "rounds", "sums"))
    parser.add_argument("--clients", type=numbers, default=[10, 50, 200])
    parser.add_argument("--nodes", type=numbers, default=[3])
    parser.add_argument("--dimensions", type=numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--together", action="store_true", help="rounds: all holders in this process")
    parser.add_argument("--count", type=int, default=10, help="exchanges or rounds")
    args = parser.parse_args()
    if args.what == "sums":
        sums(args.clients, args.dimensions)
    elif args.what == "exchange":
        exchange(args.nodes, args.count)
    else:
        rounds(args.nodes, args.dimensions, args.count, Together if args.together else Deployed)


if __name__ == "__main__":
    main()
