"""Fed-DPA: masks and constraints by hand, personal coordinates that never leave, and the paper's claim beside the truth."""

from __future__ import annotations

import dataclasses
import json
import stat

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.numpy import load_file  # noqa: E402
from torch import nn  # noqa: E402

from sordino import BadInput, EngineOptions, Federation, Plan, train  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.gradients.fisher import Fisher  # noqa: E402
from sordino.gradients.flat import Flat  # noqa: E402
from sordino.gradients.losses import cross_entropy  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.privacy.bounds import Flat as FlatBound  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.client import Client  # noqa: E402
from sordino.schemes.clipped import request_for  # noqa: E402
from sordino.schemes.fed_dpa import FedDpa, FedDpaUpdate, personal_coordinates, pull  # noqa: E402
from sordino.schemes.request import CONTRIBUTE  # noqa: E402

BASE = {
    "data": "toy", "clients": 12, "method": "fed-dpa", "unit": "client", "observer": "secagg-server", "sampling": "none",
    "multiplier": 0.5, "rounds": 3, "local_epochs": 1, "batch_size": 8, "lr": 0.05, "optimizer": "adam", "bound": 0.5,
}  # fmt: skip


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def work(federation, **settings):
    plan = Plan(**BASE | settings)
    terms = settle(plan, PublicSizes.of(federation))
    site = Site(network(), federation, plan)
    return FedDpaUpdate(site, site.flat.vector().numpy(), terms), terms


# ---- by hand ---------------------------------------------------------------------------------------------------------


def squared(out, y):
    return 0.5 * out[:, 0].square()


def test_the_fisher_diagonal_of_two_records_by_hand():
    """f = w.x + b with loss f^2/2: the gradient is f (x, 1). At w = (1, 2), b = 0: x = (1, 0) gives (1, 0, 1), x = (1, 1)
    gives 3 (1, 1, 1). Mean of squares: (5, 4.5, 5)."""
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
        model.bias.zero_()
    found = Fisher(Flat(model), squared).diagonal(
        torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.zeros(2, dtype=torch.int64)
    )
    np.testing.assert_allclose(found, [5.0, 4.5, 5.0], rtol=1e-6)


def test_masks_of_two_clients_by_hand():
    """A weight of four entries and a bias of two: scaled to [0, 1] within each, compared with tau."""
    flat = Flat(nn.Linear(2, 2))
    first = np.array([0.0, 1.0, 0.5, 0.3, 7.0, 7.0])  # weight: 0, 1, .5, .3; a constant bias would be 0/0
    second = np.array([10.0, 14.0, 11.0, 12.0, 0.0, 1.0])  # weight: 0, 1, .25, .5; bias: 0, 1
    assert personal_coordinates(flat, first, 0.4).tolist() == [False, True, True, False, False, False]
    assert personal_coordinates(flat, second, 0.4).tolist() == [False, True, False, True, False, True]


@pytest.mark.parametrize(("aim", "sign"), [(0.0, 1.0), (8.0, 1.0), (12.0, -1.0)])
def test_the_pull_by_hand(aim, sign):
    """theta - shared = (3, 4, 0, 0) and (4, 0): lengths 5 and 4, sum 9; the slope is half the weight times the directions."""
    flat = Flat(nn.Linear(2, 2))
    shared = torch.zeros(6)
    flat.load(torch.tensor([3.0, 4.0, 0.0, 0.0, 4.0, 0.0]))
    flat.grad.zero_()
    pull(flat, shared, 0.2, aim)
    np.testing.assert_allclose(flat.grad, sign * 0.1 * np.array([0.6, 0.8, 0, 0, 1, 0]), rtol=1e-6)
    flat.load(shared)
    flat.grad.zero_()
    pull(flat, shared, 0.2, aim)
    assert not flat.grad.any()  # a length of zero has no direction: 0/0 in the public code


@pytest.mark.parametrize(("name", "shape"), [("lenet", (1, 28, 28)), ("cnn-rail", (2, 64)), ("linear", (7,))])
def test_fisher_is_that_of_one_backward_pass_a_sample(name, shape):
    flat = Flat(build(name, shape, 4, seed=1))
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(9, *shape, generator=generator), torch.arange(9) % 4
    total = np.zeros(flat.size)
    for i in range(9):
        flat.grad.zero_()
        nn.functional.cross_entropy(flat.model(x[i : i + 1]), y[i : i + 1]).backward()
        total += flat.grad.double().square().numpy()
    np.testing.assert_allclose(Fisher(flat, cross_entropy).diagonal(x, y), total / 9, rtol=2e-4, atol=1e-10)


def test_fisher_of_a_recurrent_network_and_a_record_that_is_not_finite():
    """The sums over time are formed for a few records at a time; a record without a finite gradient adds nothing."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(3, 5, 2, batch_first=True), nn.Linear(5, 4)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    flat = Flat(Recurrent())
    x, y = torch.randn(6, 7, 3), torch.arange(6) % 4
    x[2, 3, 1] = float("nan")
    total = np.zeros(flat.size)
    for i in (0, 1, 3, 4, 5):
        flat.grad.zero_()
        nn.functional.cross_entropy(flat.model(x[i : i + 1]), y[i : i + 1]).backward()
        total += flat.grad.double().square().numpy()
    fisher = Fisher(flat, cross_entropy)
    np.testing.assert_allclose(fisher.diagonal(x, y), total / 6, rtol=2e-4, atol=1e-10)
    assert fisher.per_example.mode == "ghost"


# ---- what leaves -----------------------------------------------------------------------------------------------------


def test_personal_coordinates_are_zero_in_the_update_and_kept_by_the_client(federation):
    clients, _ = work(federation)
    x, y = clients.site.client(3)
    mask = clients.mask(clients.theta, x, y)
    assert 0 < mask.sum() < mask.size
    update = clients.update(1, 3)
    assert not update[mask].any() and update[~mask].any()
    own = clients.own_model(3, 2, clients.theta)
    assert (own[mask] != clients.theta[mask]).any()
    np.testing.assert_allclose(own[~mask], clients.theta[~mask] + update[~mask], atol=1e-6)
    np.testing.assert_array_equal(clients.own_model(4, 2, clients.theta), clients.theta)
    np.testing.assert_array_equal(update, clients.update(1, 3))  # a round that is run again begins where it began


def test_parameters_that_happen_to_be_zero_still_move(federation):
    """The public code tests masks by `value != 0`."""
    clients, _ = work(federation)
    clients.theta[:] = 0.0
    clients.site.flat.load(clients.theta)
    assert clients.update(1, 0).any()


@pytest.mark.parametrize("observer", ["server", "secagg-server"])
def test_the_pattern_of_the_mask_does_not_show(observer, federation):
    """Noise lies on all coordinates alike: their sizes are those of the noise, personal or not."""
    clients, terms = work(federation, observer=observer, multiplier=50.0)
    request = request_for(terms, 1, CONTRIBUTE, FlatBound(0.5), None, 0.0)
    x, y = clients.site.client(3)
    mask = clients.mask(clients.theta, x, y)
    std = 0.5 * 50.0 / np.sqrt(request.survivors)
    found = []
    for t in range(1, 41):
        out = np.zeros(clients.theta.size, np.int64)
        clients.contribute(dataclasses.replace(request, round=t), 3, out)
        found.append(request.grid.decode(out))
    sent = np.array(found)
    assert (sent != 0).all()
    inside, outside = sent[:, mask].std(), sent[:, ~mask].std()
    assert abs(inside / std - 1) < 0.1 and abs(outside / std - 1) < 0.1


def test_the_phases_follow_the_public_pseudo_code(federation):
    """The same by autograd on the written loss, with torch's own Adam, one batch an epoch."""
    clients, _ = work(federation, batch_size=100, local_epochs=2)
    theta, k = clients.theta.copy(), 5
    x, y = clients.site.client(k)
    mask = torch.from_numpy(clients.mask(theta, x, y))
    update = clients.update(1, k)
    model = network()
    shared = [p.detach().clone() for p in model.parameters()]
    masks = [slot.view(mask) for slot in Flat(network()).slots]
    for own, weight, aim in ((True, 0.1, 0.0), (False, 0.05, 0.5)):
        adam = torch.optim.Adam(model.parameters(), lr=0.05, eps=1e-8)
        for _ in range(2):
            adam.zero_grad()
            # |.| of zero has no slope in torch either (sub-gradient 0)
            far = sum((p - s).norm() for p, s in zip(model.parameters(), shared))
            loss = nn.functional.cross_entropy(model(x), y) + weight / 2 * (far - aim).abs()
            loss.backward()
            for p, m in zip(model.parameters(), masks):
                p.grad = torch.where(m == own, torch.nan_to_num(p.grad), torch.zeros(()))
            adam.step()
    for p, s, m, window in zip(model.parameters(), shared, masks, Flat(network()).split(torch.from_numpy(update))):
        np.testing.assert_allclose(window, torch.where(m, torch.zeros(()), (p - s).detach()), atol=2e-5)


# ---- the guarantee ---------------------------------------------------------------------------------------------------


def test_it_is_charged_as_any_client_update():
    sizes = PublicSizes(12, None)
    for observer, sampling, cohort in (
        ("public", "poisson", 3),
        ("public", "fixed", 3),
        ("secagg-server", "fixed", 3),
        ("server", "fixed", 3),
    ):
        own = Plan(**BASE | {"observer": observer, "sampling": sampling, "cohort": cohort})
        same = own.replace(method="dp-fedavg")
        assert type(own.scheme) is FedDpa and type(same.scheme) is Client
        assert settle(own, sizes).total == settle(same, sizes).total


@pytest.mark.parametrize(("claimed", "multiplier", "truth"), [(4.0, 0.765, 55), (8.0, 0.612, 77), (16.0, 0.515, 101)])
def test_the_papers_accounting_beside_the_truth(claimed, multiplier, truth):
    """CIFAR-10 with 10 clients, batch 64, 4 epochs, 30 rounds, delta 1e-5: METHODS of record accounting for a client release."""
    plan = Plan(
        **BASE
        | {
            "variant": "published",
            "clients": 10,
            "multiplier": None,
            "epsilon": claimed,
            "rounds": 30,
            "local_epochs": 4,
            "batch_size": 64,
        }
    )
    terms = settle(plan, PublicSizes(10, np.full(10, 5000)))
    assert terms.claimed == pytest.approx(claimed, rel=1e-6)
    assert terms.multiplier == pytest.approx(multiplier, abs=1e-3)
    assert terms.spent.epsilon == pytest.approx(truth, abs=0.6)


def test_noise_for_all_clients_is_too_little_where_fewer_take_part():
    """As published m of K clients leave sqrt(m / K) of the noise: what is drawn is what is charged."""
    plan = Plan(**BASE | {"variant": "published", "observer": "public", "sampling": "poisson", "cohort": 3})
    terms = settle(plan, PublicSizes(12, np.full(12, 20)))
    assert terms.multiplier_of(1) == pytest.approx(0.5 * 0.5)
    honest = settle(plan.replace(variant="certified"), PublicSizes(12, np.full(12, 20)))
    assert terms.spent.epsilon > honest.spent.epsilon


def test_it_chooses_the_personal_coordinates_by_itself():
    with pytest.raises(BadInput, match="chooses the personal coordinates by itself"):
        Plan(**BASE | {"personal": "head"})
    with pytest.raises(BadInput, match="tau must lie between"):
        train(network(), _toy(), Plan(**BASE | {"options": {"tau": 1.5}}))


def _toy():
    from populations import toy

    return toy()


# ---- whole runs ------------------------------------------------------------------------------------------------------


def weights(folder):
    return load_file(folder / "model.safetensors")


def kept(folder):
    files = sorted((folder / "checkpoint" / "personal").rglob("round-*.safetensors"))
    return {str(f.relative_to(folder)): load_file(f)["values"] for f in files}


def same(a, b):
    assert a.keys() == b.keys() and a
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])


def test_workers_and_one_process_agree_also_on_personal_models(federation, tmp_path):
    for name, engine in (("one", "in-process"), ("two", "workers")):
        train(network(), federation, Plan(**BASE), out=tmp_path / name, options=EngineOptions(engine, workers=2))
    same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    same(kept(tmp_path / "one"), kept(tmp_path / "two"))


@pytest.mark.parametrize(
    "settings", [{}, {"method": "dp-fedavg", "personal": "2"}, {"method": "adact", "personal": "head"}]
)
@pytest.mark.parametrize("every", [1, 2])
def test_a_run_that_is_killed_in_a_round_goes_on_to_the_same_bits(settings, every, federation, tmp_path):
    from sordino import Callback

    class Death(Exception):
        pass

    class Kill(Callback):
        def on_round(self, run):
            if run.state.round == 3:
                raise Death

    plan = Plan(**BASE | {"rounds": 4} | settings)
    options = EngineOptions("in-process", checkpoint_every=every)
    train(network(), federation, plan, out=tmp_path / "whole", options=options)
    with pytest.raises(Death):
        train(network(), federation, plan, out=tmp_path / "cut", options=options, callbacks=[Kill()])
    train(network(), federation, plan, out=tmp_path / "cut", options=options, resume=True)
    same(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    whole, cut = kept(tmp_path / "whole"), kept(tmp_path / "cut")
    same({k: v for k, v in whole.items() if "round-000004" in k}, {k: v for k, v in cut.items() if "round-000004" in k})


def test_resume_without_the_personal_models_is_refused(federation, tmp_path):
    import shutil

    from sordino import Callback

    class Stop(Callback):
        def on_round(self, run):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(network(), federation, Plan(**BASE), out=tmp_path / "run", callbacks=[Stop()])
    shutil.rmtree(tmp_path / "run" / "checkpoint" / "personal")
    with pytest.raises(BadInput, match="is missing, and with it what the clients of this run keep"):
        train(network(), federation, Plan(**BASE), out=tmp_path / "run", resume=True)


def with_tests(clients=4):
    from populations import toy

    plain = toy(clients)
    pairs = [plain.raw(k) for k in range(clients)]
    return Federation.from_arrays(pairs, test=plain.raw_test, local_tests=pairs, classes=3, name="toy")


def test_nothing_personal_is_in_what_is_published(tmp_path):
    """Figures of personal models are for the owner alone; the report, the statement, metrics and the model know nothing."""
    plan = Plan(**BASE | {"clients": 4})
    result = train(network(), with_tests(), plan, out=tmp_path / "run")
    private = tmp_path / "run" / "checkpoint" / "personal"
    for path in [private, *private.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    own = json.loads((private / "accuracy.json").read_text())
    assert own["clients"] == 4 and own["mean"] > result.fairness.mean  # they were trained on these very records
    figure = f"{own['mean']:.6f}"[:7]
    for name in ("report.html", "statement.txt", "statement.json", "metrics.jsonl", "fairness.json", "plan.toml"):
        assert figure not in (tmp_path / "run" / name).read_text()
    assert "never leave it" in " ".join((tmp_path / "run" / "statement.txt").read_text().split())
    assert (
        result.statement.personal
        and not train(network(), with_tests(), plan.replace(method="dp-fedavg"), out=tmp_path / "b").statement.personal
    )
    model = weights(tmp_path / "run")
    flat = Flat(network())
    for vector in kept(tmp_path / "run").values():
        for name, window in flat.named(torch.from_numpy(vector)):
            assert not np.array_equal(model[name], window.numpy())


def test_personal_layers_of_any_method(tmp_path):
    """The head of the shared model stays as it began but for noise; each client has its own, and does better with it."""
    plan = Plan(
        **BASE
        | {
            "clients": 4,
            "method": "fedavg",
            "variant": "published",
            "multiplier": None,
            "observer": "public",
            "personal": "head",
        }
    )
    federation = with_tests()
    train(network(), federation, plan, out=tmp_path / "run")
    first, last = {k: v.numpy() for k, v in network().state_dict().items()}, weights(tmp_path / "run")
    np.testing.assert_array_equal(first["2.weight"], last["2.weight"])
    assert np.abs(first["0.weight"] - last["0.weight"]).max() > 1e-3
    assert all(v.size == 15 for v in kept(tmp_path / "run").values())
    own = json.loads((tmp_path / "run" / "checkpoint" / "personal" / "accuracy.json").read_text())
    shared = json.loads((tmp_path / "run" / "fairness.json").read_text())
    assert own["mean"] > shared["mean"]


def test_a_layer_that_is_not_there_is_named_before_anything_is_granted(federation, tmp_path):
    plan = Plan(**BASE | {"method": "dp-fedavg", "personal": "fc3"})
    with pytest.raises(BadInput, match="personal names no layer 'fc3' of the model; it has '0', '2'"):
        train(network(), federation, plan, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match="keeps layers out of a client's update"):
        Plan(**BASE | {"method": "dp-fedavg", "unit": "example", "optimizer": "sgd", "personal": "head"})
