"""A share of private records that is tested on: never trained on, released once with noise, charged with the rest."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from populations import toy  # noqa: E402
from sordino import BadInput, Plan, train  # noqa: E402
from sordino.errors import NotPrivate  # noqa: E402
from sordino.federation import held_out as share  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.noisy_figures import Measure  # noqa: E402
from sordino.privacy import events, gdp  # noqa: E402
from sordino.schemes import held_out, prelude, settle  # noqa: E402
from sordino.verify.checking import check  # noqa: E402

SCHEMES = {
    "pooled": {},
    "pooled-public": {"observer": "public"},
    "local": {"observer": "server"},
    "client": {"unit": "client", "sampling": "none"},
    "client-public": {"unit": "client", "observer": "public", "cohort": 6},
    "client-public-fixed": {"unit": "client", "observer": "public", "sampling": "fixed", "cohort": 6},
    "client-server": {"unit": "client", "observer": "server", "sampling": "none"},
}
MEASURE = Measure("classification", ("0", "1", "2"))


def plan(**settings) -> Plan:
    usual = {"data": "toy", "clients": 12, "model": "linear", "method": "dp-fedavg", "epsilon": 3.0, "rounds": 3,
             "batch_size": 64, "test": "holdout=0.2"}  # fmt: skip
    return Plan(**(usual | settings))


def model():
    return build("linear", (5,), 3)


def terms_for(wanted, federation):
    return settle(wanted, PublicSizes.of(federation))


# ---- who is held out -------------------------------------------------------------------------------------------------------


def test_every_record_is_trained_on_or_held_out_and_its_place_decides():
    whole = toy()
    apart = share.hold_out(whole, 0.2, 7)
    aside = apart.held_out
    for k in range(12):
        n = whole.size(k)
        mask = share.places(0.2, 7, k, n)
        assert int(0.2 * n) <= mask.sum() == share.count(0.2, 7, k, n) == aside.size(k) <= int(0.2 * n) + 1
        assert np.array_equal(whole[k][0][mask], aside[k][0]) and np.array_equal(whole[k][0][~mask], apart[k][0])
        assert np.array_equal(whole[k][1][mask], aside[k][1]) and np.array_equal(whole[k][1][~mask], apart[k][1])
    other = Federation.from_arrays([(x * 0 + 5, (y + 1) % 3) for x, y in whole], classes=3)
    again = share.hold_out(other, 0.2, 7)
    assert again.sizes.tolist() == apart.sizes.tolist()  # what the records hold decides nothing
    assert apart.fingerprint() != whole.fingerprint() and apart.examples + aside.examples == whole.examples


def test_small_clients_count_on_average_and_keep_a_record():
    counts = [share.count(0.1, 0, k, 3) for k in range(2000)]
    assert set(counts) == {0, 1} and 0.25 < np.mean(counts) < 0.35
    assert all(share.count(0.5, 0, k, 1) == 0 for k in range(50))
    with pytest.raises(BadInput, match="no record"):
        share.hold_out(Federation.from_arrays([([[1.0]], [0]), ([[2.0]], [1])]), 0.1, 0)


def test_clients_that_are_made_on_demand_hold_out_too():
    whole = toy()
    made = Federation.on_demand(12, whole.raw, whole.size, 3)
    apart, want = share.hold_out(made, 0.2, 7), share.hold_out(whole, 0.2, 7)
    assert np.array_equal(apart[3][0], want[3][0]) and np.array_equal(apart.held_out[3][1], want.held_out[3][1])
    assert apart.size(3) == want.size(3)
    with pytest.raises(BadInput, match="declared"):
        share.hold_out(Federation.on_demand(12, whole.raw, None, 3), 0.2, 7)


@pytest.mark.parametrize("wrong", ["holdout=", "holdout=0", "holdout=0.6", "holdout=10%", "holdout=-1", "holdout=nan"])
def test_a_share_that_is_none_is_refused(wrong):
    with pytest.raises(BadInput, match="holdout=0.1"):
        plan(test=wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"method": "fedmap"}, {"mechanism": "laplace"}, {"method": "fed-dpa", "unit": "client", "sampling": "none"}],
)
def test_what_cannot_be_composed_is_refused(wrong):
    with pytest.raises(BadInput):
        plan(**wrong)


# ---- what is charged -------------------------------------------------------------------------------------------------------


def test_a_record_pays_for_the_rounds_or_for_the_test():
    """The rounds have the multiplier of a plan without a test, and the test what the whole budget allows."""
    apart = share.hold_out(toy(), 0.2, 0)
    terms = terms_for(plan(), apart)
    bare = settle(plan(test=None), PublicSizes(12, apart.sizes))
    assert terms.multiplier == bare.multiplier and terms.total == bare.total
    assert terms.held_out == pytest.approx(1 / gdp.mu(3.0, 1e-5), rel=1e-4) and terms.held_out >= 1 / gdp.mu(3.0, 1e-5)
    assert terms.tested == apart.held_out.examples
    assert bare.spent.epsilon <= terms.spent.epsilon <= 3.0
    given = terms_for(plan(epsilon=None, multiplier=1.0), apart)  # the test costs no more than the rounds do
    assert given.spent.epsilon == pytest.approx(
        settle(given.plan, PublicSizes(12, apart.sizes)).spent.epsilon, rel=1e-6
    )


def test_a_client_pays_for_both():
    apart = share.hold_out(toy(), 0.2, 0)
    terms = terms_for(plan(unit="client", sampling="none"), apart)
    mu = gdp.mu(3.0, 1e-5)
    assert terms.held_out == pytest.approx(1 / (mu * math.sqrt(0.05)), rel=1e-4)
    assert 1 / terms.held_out**2 + 3 / terms.multiplier**2 == pytest.approx(mu**2, rel=1e-3)
    assert terms.total == events.composed(
        [events.repeated(events.gaussian(terms.multiplier), 3), events.gaussian(terms.held_out)]
    )
    assert terms.tested == 12


@pytest.mark.parametrize("scheme", ["pooled", "local", "client", "client-public-fixed"])
def test_every_scheme_settles_tests_and_verifies(scheme, tmp_path):
    result = train(model(), toy(), plan(**SCHEMES[scheme]), out=tmp_path / "run")
    assert 2.9 < result.epsilon <= 3.0
    verdict = check(tmp_path / "run")
    assert all(one.ok is not False for one in verdict.checks), verdict
    assert any("tested on once" in one.said for one in verdict.checks)
    found = result.held_out
    assert found is not None and found.tested == result.terms.tested
    assert "What it is tested on" in result.statement.text()
    assert "On held-out records, with noise" in (tmp_path / "run" / "report.html").read_text()
    assert "held-out" in (tmp_path / "run" / "MODEL_CARD.md").read_text()
    assert json.loads((tmp_path / "run" / "held_out.json").read_text())["figures"]["accuracy"] == found.accuracy
    assert result.plan.test == "holdout=0.2"


def test_the_figure_is_that_of_the_model_on_those_records(tmp_path):
    """With hardly any noise it is what anyone can count; and the model is that of a run on the other records alone."""
    wanted = plan(epsilon=None, multiplier=1e-3, observer="public")
    result = train(model(), toy(), wanted, out=tmp_path / "run")
    apart = share.hold_out(toy(), 0.2, 0)
    x, y = (np.concatenate([apart.held_out[k][i] for k in range(12)]) for i in (0, 1))
    with torch.no_grad():
        right = float((result.model(torch.from_numpy(x)).argmax(1).numpy() == y).mean())
    assert result.held_out.accuracy == pytest.approx(right, abs=5e-3)
    rest = Federation.from_arrays([apart.raw(k) for k in range(12)], toy().raw_test, classes=3, name="toy")
    alone = train(model(), rest, wanted.replace(test=None), out=tmp_path / "alone")
    for one, other in zip(result.model.parameters(), alone.model.parameters()):
        assert torch.equal(one, other)


# ---- noise -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_noise_is_what_was_charged(scheme):
    """What 1500 classes that nobody has show is noise alone. Two thirds and three halves of it are told apart."""
    apart = share.hold_out(Federation.from_arrays([toy()[k] for k in range(12)], classes=1500), 0.2, 0)
    wanted = plan(**SCHEMES[scheme])
    terms, wide = terms_for(wanted, apart), Measure("classification", tuple(map(str, range(1500))))
    big = build("linear", (5,), 1500)
    theta = torch.cat([p.detach().reshape(-1) for p in big.parameters()]).numpy()
    total = held_out.here(apart.held_out, wanted, wide, big)(held_out.request_for(terms), theta).total
    noisy, surplus = prelude.opened(terms, terms.held_out, total, "held-out")
    assert float(np.std(noisy[10:])) == pytest.approx(terms.held_out * surplus, rel=0.06)
    assert surplus == pytest.approx(math.sqrt(12) if terms.scheme.noise == "local" else 1.0)


def test_a_test_with_too_few_shares_stays_closed():
    apart, wanted = share.hold_out(toy(), 0.2, 0), plan()
    terms = terms_for(wanted, apart)
    fewer = share.hold_out(Federation.from_arrays([toy().raw(k) for k in range(11)], classes=3), 0.2, 0)
    ask = held_out.here(fewer.held_out, wanted, MEASURE, model())
    theta = np.zeros(18, np.float32)
    with pytest.raises(NotPrivate, match="too few"):
        prelude.opened(terms, terms.held_out, ask(held_out.request_for(terms), theta).total, "held-out")


# ---- a run that is cut short -----------------------------------------------------------------------------------------------


class Cut(Exception):
    pass


def cut(monkeypatch, where):
    def stop(*_, **__):
        raise Cut

    monkeypatch.setattr(held_out, where, stop)


def test_a_seeded_test_that_was_cut_short_is_the_same_test(tmp_path, monkeypatch):
    whole = train(model(), toy(), plan(), out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        cut(patch, "save")
        with pytest.raises(Cut):
            train(model(), toy(), plan(), out=tmp_path / "run")
    assert (tmp_path / "run" / "statement.json").exists()  # before anything that can fail
    again = train(model(), toy(), plan(), out=tmp_path / "run", resume=True)
    assert again.held_out == whole.held_out
    assert check(tmp_path / "run").ok
    third = train(model(), toy(), plan(), out=tmp_path / "run", resume=True)  # kept, and not asked for again
    assert third.held_out == whole.held_out and check(tmp_path / "run").ok


def test_a_secure_test_that_was_cut_short_is_not_made_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        cut(patch, "save")
        with pytest.raises(Cut):
            train(model(), toy(), plan(secure=True), out=tmp_path / "run")
    again = train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True)
    assert again.held_out is None and any("cut short" in said for said in again.warnings)
    assert check(tmp_path / "run").ok


def test_taking_the_ledger_or_the_figures_away_gets_no_second_test(tmp_path):
    train(model(), toy(), plan(secure=True), out=tmp_path / "run")
    (tmp_path / "run" / "held_out.json").unlink()
    assert train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True).held_out is None
    (tmp_path / "run" / "held_out.jsonl").unlink()
    with pytest.raises(BadInput, match="restore"):
        train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True)


def test_verify_sees_a_second_test_and_figures_that_were_changed(tmp_path):
    train(model(), toy(), plan(), out=tmp_path / "run")
    kept = (tmp_path / "run" / "held_out.json").read_text()
    (tmp_path / "run" / "held_out.json").write_text(kept.replace('"accuracy": 0.', '"accuracy": 0.9'))
    assert not check(tmp_path / "run").ok
    (tmp_path / "run" / "held_out.json").write_text(kept)
    assert check(tmp_path / "run").ok
    (tmp_path / "run" / "held_out.jsonl").unlink()
    assert not check(tmp_path / "run").ok


def test_held_out_records_are_the_non_members_of_an_attack(tmp_path):
    """Members are those that were trained on; the replay of the rounds ends in the same model."""
    from sordino.attacks.protocol import Protocol
    from sordino.attacks.runs import Settings, attack_run

    bare = Federation.from_arrays([toy(size=80).raw(k) for k in range(12)], classes=3, name="toy")
    train(model(), bare, plan(unit="client", sampling="none"), out=tmp_path / "run")
    table = attack_run(
        tmp_path / "run", ["basic", "cs"], Settings(Protocol(records=60), control="none"), make=lambda seed: build("linear", (5,), 3, seed),
        federation=bare,
    )  # fmt: skip
    assert {row["attack"] for row in table["results"]} == {"basic", "cs"} and not table["refused"]
