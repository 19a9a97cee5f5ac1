"""Statistics before round 1: settled with the rounds, granted before data is touched, kept, and drawn once."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from populations import toy  # noqa: E402
from sordino import BadInput, Plan, train  # noqa: E402
from sordino.errors import BudgetRefused, NotPrivate  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.privacy import events, gdp, products  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402
from sordino.schemes import prelude, settle  # noqa: E402
from sordino.schemes.budget_shares import prelude_multipliers  # noqa: E402
from sordino.verify.checking import check  # noqa: E402

RANGES = {"kind": "standard", "share": 0.1, "low": [-4.0] * 5, "high": [4.0] * 5}
SCHEMES = {
    "pooled": {},
    "pooled-public": {"observer": "public"},
    "local": {"observer": "server"},
    "client": {"unit": "client", "sampling": "none"},
    "client-fixed": {"unit": "client", "sampling": "fixed", "cohort": 6},
    "client-public": {"unit": "client", "observer": "public", "cohort": 6},
    "client-public-fixed": {"unit": "client", "observer": "public", "sampling": "fixed", "cohort": 6},
}


def plan(**settings) -> Plan:
    usual = {"data": "toy", "clients": 12, "model": "linear", "method": "dp-fedavg", "epsilon": 3.0, "rounds": 4,
             "batch_size": 64, "prepare": RANGES}  # fmt: skip
    return Plan(**(usual | settings))


def model():
    from sordino.models import build

    return build("linear", (5,), 3)


# ---- what is charged -------------------------------------------------------------------------------------------------------


def test_the_total_is_the_prelude_and_the_rounds_by_hand():
    sizes = PublicSizes(12, np.full(12, 20))
    terms = settle(plan(epsilon=None, multiplier=2.0), sizes)
    z = prelude_multipliers(terms.plan, terms.relation)
    assert z == (pytest.approx(2 / math.sqrt(0.1), rel=1e-4),) and z[0] >= 2 / math.sqrt(0.1)
    rounds = events.repeated(events.poisson(64 / 240, events.gaussian(2.0)), 4)
    assert terms.total == events.composed([events.gaussian(z[0]), rounds])


def test_a_share_is_a_part_of_the_budget_as_gaussians_add_up():
    """Without sampling everything is Gaussian: the prelude has a tenth of mu^2, and the rounds what is left."""
    terms = settle(plan(sampling="none"), PublicSizes(12, np.full(12, 20)))
    mu = gdp.mu(3.0, 1e-5)
    assert terms.prelude[0] == pytest.approx(1 / (mu * math.sqrt(0.1)), rel=1e-4)
    assert 1 / terms.prelude[0] ** 2 + 4 / terms.multiplier**2 == pytest.approx(mu**2, rel=1e-3)
    assert terms.spent.epsilon <= 3.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_settles_plays_and_verifies(scheme, tmp_path):
    result = train(model(), toy(), plan(**SCHEMES[scheme]), out=tmp_path / "run")
    assert 2.9 < result.epsilon <= 3.0
    with Ledger.read(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert [(grant.round, grant.step) for grant in ledger][:2] == [(0, 0), (1, 0)]
    verdict = check(tmp_path / "run")
    assert all(one.ok is not False for one in verdict.checks), verdict
    said = (tmp_path / "run" / "statement.txt").read_text().replace("\n     ", " ")
    assert "mean and the mean square" in said
    shared = result.terms.scheme.noise == "shares"
    assert (f"is divided among {prelude.survivors(result.terms)} of the" in said) == shared
    assert "Released before round 1" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("wrong", [{"mechanism": "laplace", "method": "dp-fedavg"}, {"method": "fedmap"}])
def test_what_cannot_be_composed_is_refused(wrong):
    with pytest.raises(BadInput):
        plan(**wrong)


# ---- noise -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["pooled", "pooled-public", "local", "client", "client-fixed"])
def test_the_noise_on_a_statistic_is_what_was_charged(scheme):
    """Blank records contribute a known vector; the rest is noise. Two thirds and three halves of it are told apart."""
    width = 3000
    wide = {"kind": "standard", "share": 0.1, "low": [-4.0] * width, "high": [4.0] * width}
    wanted = plan(**SCHEMES[scheme], prepare=wide)
    federation = Federation.from_arrays([(np.zeros((3, width), np.float32), [0, 1, 2])] * 12, classes=3)
    terms = settle(wanted, PublicSizes.of(federation))
    stages = wanted.preparation.stages((width,))
    seen = {}

    class Spy:
        length, contributions = stages.length, stages.contributions

        def decode(self, step, mean, noise):
            seen.update(mean=mean, noise=noise)
            return mean

    total = prelude.here(federation, wanted, stages)(prelude.request_for(terms, 0), []).total
    prelude._open(terms, Spy(), 0, total)
    units = 12 if wanted.unit == "client" else 36
    blank = np.concatenate([np.zeros(width), np.full(width, -1.0)]) / math.sqrt(2 * width)
    said = float(np.std(seen["mean"] - blank))
    assert said == pytest.approx(seen["noise"], rel=0.06)
    assert seen["noise"] >= terms.prelude[0] / units * (1 - 1e-12)
    surplus = 12 if scheme == "local" else 1
    assert seen["noise"] == pytest.approx(terms.prelude[0] / units * math.sqrt(surplus))


@pytest.mark.parametrize("scheme", ["pooled", "pooled-public", "local", "client", "client-fixed"])
def test_the_noise_on_a_covariance_is_what_was_charged(scheme):
    """Sums of products: the exact one is taken away, and the rest is noise."""
    cosines = {"dense": 60, "singles": 10, "pairs": 10, "scaling": 0.0, "covariances": 2, "covariance": 0.6}
    wanted = plan(**SCHEMES[scheme], prepare={"kind": "fourier", "share": 0.3, **cosines})
    draws = np.random.Generator(np.random.PCG64(0))
    federation = Federation.from_arrays(
        [(draws.standard_normal((3, 5)).astype(np.float32), [0, 1, 2]) for _ in range(12)], classes=3
    )
    terms, stages = settle(wanted, PublicSizes.of(federation)), wanted.preparation.stages((5,))
    told, whole, seen = [np.zeros(85)], np.zeros(85 * 86 // 2), {}
    for k in range(12):
        (block,) = stages.contributions(1, federation.raw(k)[0], told)
        whole += products.total(block.rows) / (3 if wanted.unit == "client" else 1)

    class Spy:
        def decode(self, step, mean, noise):
            seen.update(mean=mean, noise=noise)
            return mean

    total = prelude.here(federation, wanted, stages)(prelude.request_for(terms, 1), told).total
    prelude._open(terms, Spy(), 1, total)
    units = 12 if wanted.unit == "client" else 36
    assert float(np.std(seen["mean"] - whole / units)) == pytest.approx(seen["noise"], rel=0.06)
    assert seen["noise"] == pytest.approx(
        terms.prelude[1] / units * math.sqrt(12 if scheme == "local" else 1), rel=1e-9
    )
    assert terms.prelude[1] == terms.prelude[2] > terms.prelude[0]  # 30% of the share each, and 40% for the mean


def test_a_statistic_with_too_few_shares_stays_closed():
    federation, wanted = toy(), plan()
    terms = settle(wanted, PublicSizes.of(federation))
    stages = wanted.preparation.stages((5,))
    fewer = Federation.from_arrays([federation.raw(k) for k in range(11)], classes=3)
    total = prelude.here(fewer, wanted, stages)(prelude.request_for(terms, 0), []).total
    with pytest.raises(NotPrivate, match="too few"):
        prelude._open(terms, stages, 0, total)


def test_one_record_moves_a_sum_by_at_most_one():
    """Also a record that is not a number, or far out of every range; and a client, in the client unit."""
    for unit in ("example", "client"):
        wanted = plan(unit=unit, sampling="none", observer="public")
        stages = wanted.preparation.stages((5,))
        rng = np.random.Generator(np.random.PCG64(0))
        for worst in (np.full(5, 1e30), np.full(5, -4.0), np.array([np.nan, np.inf, -np.inf, 4.0, 4.0])):
            x = rng.normal(size=(6, 5))
            federation = Federation.from_arrays([(x, [0, 1, 2] * 2)] * 12, classes=3)
            request = prelude.request_for(settle(wanted, PublicSizes.of(federation)), 0)
            without, with_it = np.zeros((2, stages.length(0)), np.int64)
            prelude.contribute(request, wanted, stages, [], 0, x, without)
            prelude.contribute(request, wanted, stages, [], 0, np.concatenate([x, [worst]]), with_it)
            assert np.linalg.norm(request.grid.decode(with_it - without)) <= 1 + 1e-9


# ---- a run that is cut short -----------------------------------------------------------------------------------------------


class Cut(Exception):
    pass


def cut(monkeypatch, where):
    def broken(*_, **__):
        raise Cut

    monkeypatch.setattr(prelude, where, broken)


@pytest.mark.parametrize("where", ["_open", "save"])
@pytest.mark.parametrize("secure", [False, True])
def test_a_statistic_that_was_cut_short_is_drawn_again_only_with_the_same_noise(where, secure, tmp_path, monkeypatch):
    wanted = plan(secure=secure)
    with monkeypatch.context() as patched:
        cut(patched, where)
        with pytest.raises(Cut):
            train(model(), toy(), wanted, out=tmp_path / "run")
    if secure:
        with pytest.raises(BudgetRefused, match="cut short"):
            train(model(), toy(), wanted, out=tmp_path / "run", resume=True)
        return
    resumed = train(model(), toy(), wanted, out=tmp_path / "run", resume=True)
    whole = train(model(), toy(), wanted, out=tmp_path / "whole")
    for one, other in zip(resumed.model.parameters(), whole.model.parameters()):
        assert torch.equal(one, other)
    assert all(one.ok is not False for one in check(tmp_path / "run").checks)


@pytest.mark.parametrize("secure", [False, True])
def test_after_the_prelude_a_run_goes_on_without_asking_again(secure, tmp_path, monkeypatch):
    import sordino.training.loop as training

    wanted = plan(secure=secure, prepare="standard")  # two statistics
    with monkeypatch.context() as patched:
        patched.setattr(training._Training, "_loop", lambda *_: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            train(model(), toy(), wanted, out=tmp_path / "run")
    kept = (tmp_path / "run" / prelude.FILE).read_bytes()
    monkeypatch.setattr(prelude, "contribute", lambda *_: pytest.fail("clients were asked again"))
    result = train(model(), toy(), wanted, out=tmp_path / "run", resume=True)
    assert result.rounds == 4 and (tmp_path / "run" / prelude.FILE).read_bytes() == kept
    assert all(one.ok is not False for one in check(tmp_path / "run").checks)


def test_a_run_does_not_go_on_with_other_data(tmp_path, monkeypatch):
    """The noise of a seeded prelude on two populations would show their difference."""
    with monkeypatch.context() as patched:
        cut(patched, "save")
        with pytest.raises(Cut):
            train(model(), toy(), plan(), out=tmp_path / "run")
    with pytest.raises(BadInput, match="not the data"):
        train(model(), toy(seed=1), plan(), out=tmp_path / "run", resume=True)


# ---- files that were changed ----------------------------------------------------------------------------------------------


def stopped_after_prelude(out, monkeypatch, **settings):
    import sordino.training.loop as training

    with monkeypatch.context() as patched:
        patched.setattr(training._Training, "_loop", lambda *_: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            train(model(), toy(), plan(**settings), out=out)


def test_the_statistics_of_another_run_are_refused(tmp_path, monkeypatch):
    for name in ("run", "other"):
        stopped_after_prelude(tmp_path / name, monkeypatch, secure=True)
    (tmp_path / "run" / prelude.FILE).write_bytes((tmp_path / "other" / prelude.FILE).read_bytes())
    with pytest.raises(BadInput, match="does not belong"):
        train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True)


def test_taking_the_statistics_away_does_not_get_new_ones(tmp_path, monkeypatch):
    stopped_after_prelude(tmp_path / "run", monkeypatch, secure=True)
    (tmp_path / "run" / prelude.FILE).unlink()
    with pytest.raises(BudgetRefused):
        train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True)


def test_verify_misses_statistics_that_were_taken_out_or_changed(tmp_path):
    train(model(), toy(), plan(), out=tmp_path / "run")
    file = tmp_path / "run" / prelude.FILE
    whole = file.read_bytes()
    for content in (None, whole[:-1] + bytes([whole[-1] ^ 1])):
        file.unlink() if content is None else file.write_bytes(content)
        assert any(one.ok is False and prelude.FILE in one.said for one in check(tmp_path / "run").checks)


def test_a_model_is_attacked_with_the_input_that_it_was_trained_on(tmp_path):
    from sordino.attacks.opening import Settings, open_run
    from sordino.attacks.shadows import quiet

    train(model(), toy(size=60), plan(), out=tmp_path / "run")
    opened = open_run(tmp_path / "run", None, toy(size=60), Settings(), quiet)
    apply = prelude.model_input(tmp_path / "run", plan(), (5,))
    assert np.array_equal(opened.target.cast.federation[3][0], apply(toy(size=60).raw(3)[0]))
    assert opened.guarantee.epsilon == pytest.approx(3.0, rel=1e-2) and not opened.target.plan.prepare
