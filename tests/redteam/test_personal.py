"""What a client keeps for itself must not leave: not to a server, not to a callback, not through a file."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import Hall, toy  # noqa: E402

from sordino import BadInput, Callback, EngineOptions, Federation, Plan, train  # noqa: E402
from sordino.engines.flower import wire  # noqa: E402
from sordino.schemes.client import Client  # noqa: E402
from sordino.schemes.plain import Plain  # noqa: E402

BARE = {
    "data": "toy", "clients": 3, "method": "fedavg", "variant": "published", "unit": "client", "observer": "public",
    "sampling": "none", "rounds": 3, "batch_size": 8, "lr": 0.3, "model": "linear", "personal": "out",
}  # fmt: skip


class Tapped(Hall):
    """A hall whose network keeps a copy of everything that holders answer."""

    def __init__(self, *given):
        super().__init__(*given)
        self.heard = []
        for name, handle in list(self.direct.handlers.items()):
            self.direct.handlers[name] = self._tap(handle)

    def _tap(self, handle):
        def tapped(message):
            answer = handle(message)
            self.heard.append(wire.from_bytes(answer))
            return answer

        return tapped


def two_layers(shape, classes):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, classes))


def test_a_server_that_sees_every_message_never_sees_a_personal_coordinate(tmp_path, monkeypatch):
    """Without noise (fedavg) whatever left would be plain to see: the personal part of each message is zero in each round."""
    from dataclasses import replace

    module = tmp_path / "nets_of_mine.py"
    module.write_text("import torch\n\n\ndef two_layers(shape, classes):\n    torch.manual_seed(0)\n    return torch.nn.Sequential("
                      "torch.nn.Flatten(), torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, classes))\n")  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    from hall import ANYTHING

    pin = hashlib.sha256(module.read_bytes()).hexdigest()
    policy = replace(ANYTHING, code=(f"nets_of_mine:two_layers#sha256={pin}",))
    hall = Tapped(toy(clients=3), tmp_path / "holders", policy)
    hall.train(Plan(**BARE | {"model": "nets_of_mine:two_layers", "personal": "3"}), tmp_path / "run")
    hall.close()
    sent = [message.arrays["codes"] for message in hall.heard if "codes" in message.arrays]
    assert len(sent) == 9 and all(len(codes) == 39 for codes in sent)
    for codes in sent:
        assert codes[:24].any() and not codes[24:].any()
    assert list((tmp_path / "holders").rglob("personal/*/round-*.safetensors"))
    assert not any("personal" in json.dumps(message.head) for message in hall.heard)


def population():
    plain = toy(clients=3)
    pairs = [plain.raw(k) for k in range(3)]
    return Federation.from_arrays(pairs, test=plain.raw_test, local_tests=pairs, classes=3, name="toy")


def test_a_callback_is_told_nothing_of_personal_models(tmp_path):
    rows = []

    class Listen(Callback):
        def on_round(self, run):
            rows.append(dict(run.row))

        def on_end(self, run):
            rows.append(dict(run.row) | {"clients": run.state.clients})

    plan = Plan(**BARE | {"personal": "3"})
    train(
        two_layers(None, 3),
        population(),
        plan,
        out=tmp_path / "run",
        options=EngineOptions("in-process"),
        callbacks=[Listen()],
    )
    own = json.loads((tmp_path / "run" / "checkpoint" / "personal" / "accuracy.json").read_text())
    assert all(not row.get("clients") for row in rows)
    assert not any(value == own["mean"] for row in rows for value in row.values())


def test_a_neighbours_personal_state_is_not_mixed_up(tmp_path):
    """Clients that swap places would show each other's models: what is kept goes by client."""
    from sordino.clients.personal import PersonalModels

    models = PersonalModels(tmp_path / "p")
    for k in (1, 10, 100):
        models.save(k, 1, np.full(3, k, np.float32))
    for k in (1, 10, 100):
        assert (models.load(k, 2) == k).all()


def test_clients_that_release_by_epoch_keep_no_layers_and_say_so():
    """They send every coordinate; a plan that promised otherwise would be a lie in the statement."""
    base = {k: v for k, v in BARE.items() if k != "variant"} | {"method": "noise-gamma", "observer": "server"}
    with pytest.raises(BadInput, match="here every local epoch makes one"):
        Plan(**base | {"sampling": "fixed", "multiplier": 1.0, "local_epochs": 2})


def test_every_scheme_either_keeps_layers_or_refuses():
    """A scheme that took `personal` and worked by other clients than `ClientUpdate` would send what it said it keeps."""
    from sordino.methods import METHODS
    from sordino.schemes.client import ClientUpdate

    kept = 0
    for name, method in METHODS.items():
        for variant in method.variants:
            for observer in method.towards(variant):
                noise = {"multiplier": 1.0} if method.private else {}
                given = {"method": name, "variant": variant, "observer": observer, "local_epochs": 2, **noise}
                try:
                    plan = Plan(**{k: v for k, v in BARE.items() if k != "variant"} | given)
                except BadInput:
                    continue
                assert plan.scheme.keeps_personal and issubclass(plan.scheme.work_class, ClientUpdate)
                assert type(plan.scheme).work in (Client.work, Plain.work), name
                kept += 1
    assert kept > 10


@pytest.mark.parametrize("observer", ["secagg-server", "server"])
def test_a_server_cannot_choose_a_model_that_brings_the_mask_out(observer, tmp_path):
    """The server picks theta. A huge one makes Fisher masks and updates as uneven as can be; clipping and noise stay."""
    from sordino.clients.site import Site
    from sordino.federation.sizes import PublicSizes
    from sordino.privacy.bounds import Flat
    from sordino.schemes import settle
    from sordino.schemes.clipped import request_for
    from sordino.schemes.request import CONTRIBUTE

    base = {k: v for k, v in BARE.items() if k not in ("variant", "personal")}
    plan = Plan(
        **base | {"method": "fed-dpa", "observer": observer, "multiplier": 4.0, "optimizer": "adam", "rounds": 30}
    )
    federation = population()
    terms = settle(plan, PublicSizes.of(federation))
    site = Site(two_layers(None, 3), federation, plan)
    theta = site.flat.vector().numpy() * 1e4
    work = plan.scheme.work(site, theta, None, terms)
    sent = []
    for t in range(1, 31):
        request = request_for(terms, t, CONTRIBUTE, Flat(1.0), None, 0.0)
        out = np.zeros(theta.size, np.int64)
        reply = work.contribute(request, 1, out)
        assert reply.noise == pytest.approx(request.multiplier**2 / request.survivors)
        sent.append(request.grid.decode(out))
    noise, std = np.array(sent), 4.0 / np.sqrt(request.survivors)
    assert (noise != 0).all()  # a coordinate without noise would name itself
    assert (np.abs(noise.std(axis=0) / std - 1) < 0.6).all()


@pytest.mark.parametrize("tau", [0.0, 0.4, 0.999])
def test_what_leaves_is_bounded_whatever_the_records_make_of_the_mask(tau):
    """Records chosen to hurt: huge, tiny, equal, random, close to overflow. The mask follows them; the length does not."""
    from sordino.clients.site import Site
    from sordino.federation.sizes import PublicSizes
    from sordino.privacy.bounds import Flat
    from sordino.schemes import settle
    from sordino.schemes.clipped import request_for
    from sordino.schemes.request import CONTRIBUTE

    base = {k: v for k, v in BARE.items() if k not in ("variant", "personal")}
    plan = Plan(**base | {"method": "fed-dpa", "multiplier": 4.0, "lr": 50.0, "options": {"tau": tau}})
    plain, rng, masks = toy(clients=3), np.random.default_rng(0), set()
    shape = plain.raw(0)[0].shape
    spike = np.zeros(shape, np.float32)
    spike[:, 1] = 1e15
    hurting = [
        spike,
        np.full(shape, 1e-30),
        np.ones(shape),
        rng.standard_normal(shape) * 1e6,
        spike * 1e20,
        -spike[:, ::-1],
    ]
    sent = []
    for records in hurting:
        pairs = [(records.astype(np.float32), plain.raw(0)[1]), plain.raw(1), plain.raw(2)]
        federation = Federation.from_arrays(pairs, classes=3, name="toy")
        terms = settle(plan, PublicSizes.of(federation))
        site = Site(two_layers(None, 3), federation, plan)
        work = plan.scheme.work(site, site.flat.vector().numpy().copy(), None, terms)
        request = request_for(terms, 1, CONTRIBUTE, Flat(1.0), None, 0.0)
        for scale in (1.0, 1e4):
            work.theta = site.flat.vector().numpy().copy() * np.float32(scale)
            mask = work.mask(work.theta, *site.client(0))
            masks.add(mask.tobytes())
            work.theta, out = work.theta.copy(), np.zeros(work.theta.size, np.int64)
            work.contribute(request, 0, out)
            sent.append(request.grid.decode(out))
            assert not sent[-1][mask].any()
    assert len(masks) >= 3
    assert max(np.linalg.norm(a) for a in sent) <= 1.0 + 1e-12
    assert max(np.linalg.norm(a - b) for a in sent for b in sent) <= 2.0 + 1e-12  # any of them in the place of another
    assert max(np.linalg.norm(a) for a in sent) > 0.9  # so the search reaches the bound
