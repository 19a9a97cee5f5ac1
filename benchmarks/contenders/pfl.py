"""Apple's pfl-research with central Gaussian noise, two worker processes of one thread (torchrun)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

if "WORLD_SIZE" not in os.environ:
    # torchrun starts this very file twice.
    environment = dict(os.environ, OMP_NUM_THREADS="1", PFL_PYTORCH_DEVICE="cpu")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29577"]
    done = subprocess.run(
        [*command, os.path.abspath(__file__), *sys.argv[1:]], env=environment, capture_output=True, text=True
    )
    said = [line for line in done.stdout.splitlines() if line.startswith('{"contender"')]
    sys.exit(print(said[0]) if said else done.stderr[-3000:])

# This folder's own name for the script must not hide the library.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import common
from net import Net, accuracy
from torch.nn import functional

args = common.arguments()
w = common.work(args.work)
torch.set_num_threads(1)
x, y = torch.from_numpy(w.x), torch.from_numpy(w.y)


class Model(Net):
    def loss(self, x, y, **_):
        return functional.cross_entropy(self(x), y)

    def metrics(self, x, y, **_):
        return {"loss": Weighted(self.loss(x, y).item(), len(y))}


class Timed(TrainingProcessCallback):
    def __init__(self):
        self.clock = common.Clock()

    def on_train_begin(self, *, model):
        self.clock = common.Clock()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.clock.lap()
        return False, Metrics()


def user(k):
    here = common.client(w, k)
    order = torch.randperm(here.stop - here.start)
    return PyTorchTensorDataset((x[here][order], y[here][order]), user_id=str(k))


torch.manual_seed(0)
net = Model()
draws = itertools.cycle(w.cohorts.reshape(-1).tolist())
sizes = {k: int(w.offsets[k + 1] - w.offsets[k]) for k in range(w.clients)}
users = FederatedDataset(user, lambda: next(draws), sizes)
noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(w.bound, w.multiplier))
timed = Timed()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=args.rounds, evaluation_frequency=10**6, train_cohort_size=w.cohort, val_cohort_size=0
    ),
    backend=SimulatedBackend(training_data=users, val_data=users, postprocessors=[noise]),
    model=PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
    model_train_params=NNTrainHyperParams(local_batch_size=w.batch, local_num_epochs=1, local_learning_rate=w.lr),
    model_eval_params=NNEvalHyperParams(local_batch_size=1000),
    callbacks=[timed],
)
if int(os.environ.get("RANK", "0")) == 0:
    common.emit("pfl-research", timed.clock.laps, accuracy(net, torch.from_numpy(w.test_x), torch.from_numpy(w.test_y)))
