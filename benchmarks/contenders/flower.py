"""Flower's simulation on Ray, message API, with its own fixed-clipping wrapper; two actors of one thread."""

from __future__ import annotations

import os
import sys

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DEDUP_LOGS="0",
    PYTHONPATH=os.path.dirname(os.path.abspath(__file__)),
    BENCH_WORK=os.path.abspath(sys.argv[1]),
)
import common
import torch
from flower_client import app as clients
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from net import Net, accuracy

args = common.arguments()
w = common.work(args.work)
clock = common.Clock()
kept = {}


class Scheduled(FedAvg):
    """Stock FedAvg whose cohort is the work file's."""

    def _construct_messages(self, record, node_ids, message_type):
        t = record["config"]["server-round"]
        return [
            Message(
                RecordDict({"arrays": record["arrays"], "config": ConfigRecord({"client": int(k), "server-round": t})}),
                message_type=message_type,
                dst_node_id=node,
            )
            for node, k in zip(node_ids, w.cohorts[t - 1])
        ]


class Timed(DifferentialPrivacyServerSideFixedClipping):
    def aggregate_train(self, *given):
        result = super().aggregate_train(*given)
        clock.lap()
        return result


server = ServerApp()


@server.main()
def main(grid, context):
    torch.manual_seed(0)
    plain = Scheduled(
        fraction_train=w.cohort / w.clients, fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=w.clients
    )
    strategy = Timed(plain, noise_multiplier=w.multiplier, clipping_norm=w.bound, num_sampled_clients=w.cohort)
    clock.lap()
    clock.laps.clear()
    kept["result"] = strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=args.rounds)


run_simulation(
    server,
    clients,
    num_supernodes=w.clients,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 2, "log_to_driver": False},
    },
)
model = Net()
model.load_state_dict(kept["result"].arrays.to_torch_state_dict())
common.emit("Flower", clock.laps, accuracy(model, torch.from_numpy(w.test_x), torch.from_numpy(w.test_y)))
