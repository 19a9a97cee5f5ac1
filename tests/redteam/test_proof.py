"""Attacks on the proof of a run: rules, schedules, sizes, ledgers and draws chosen to make the printed epsilon false.

Each test is an attack that once reached more than what was printed. It must be refused before data is touched, or the
printed epsilon must cover it.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from populations import toy  # noqa: E402
from sordino import BadInput, EngineOptions, Federation, Method, Plan, train  # noqa: E402
from sordino.errors import NotPrivate, SordinoError  # noqa: E402
from sordino.federation.sampling import Draws, public_cohort  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.methods import METHODS  # noqa: E402
from sordino.privacy import accounting, events  # noqa: E402
from sordino.privacy.bounds import Flat  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402
from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.rules.base import NOTHING, Queries  # noqa: E402
from sordino.rules.query import CentredBit, RawNorm, answer_codes  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.pooled import Pooled  # noqa: E402

HERE = EngineOptions("in-process", evaluate_every=100)
SETTINGS = [
    {"unit": "client", "observer": "public"},
    {"unit": "client", "observer": "server", "sampling": "fixed"},
    {"unit": "example", "observer": "secagg-server"},
    {"unit": "example", "observer": "server"},
]


def plan(**settings) -> Plan:
    base = {
        "data": "toy",
        "clients": 12,
        "method": "dp-fedavg",
        "multiplier": 2.0,
        "rounds": 3,
        "batch_size": 8,
        "lr": 0.1,
    }
    return Plan(**(base | settings))


# ---- a user's own rule -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Own:
    """A rule that asks what it likes, and clips by what it likes."""

    queries: Queries = NOTHING
    clip: object = Flat(1.0)
    later: bool = False  # asks from the second round on

    def init(self):
        return {"round": 0}

    def query(self, state):
        return NOTHING if self.later and state["round"] == 0 else self.queries

    def bound(self, state, answer):
        return self.clip

    def observe(self, state, seen):
        return {"round": seen.round}


def own(rule) -> Method:
    return Method("own", "nobody", lambda context: rule, mechanisms=("gaussian", "laplace"))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['unit']}-{s['observer']}")
@pytest.mark.parametrize("queries", [Queries(RawNorm()), Queries(None, RawNorm())], ids=["pre_clip", "with_sum"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_exact_norms_are_never_certified(settings, queries, later, linear, tmp_path):
    rule = Own(queries, later=later)
    with pytest.raises(SordinoError, match="asks for exact norms"):
        train(linear(), toy(), plan(**settings), method=own(rule), out=tmp_path / "run", options=HERE)
    assert later or not (tmp_path / "run").exists()  # nothing was granted


@dataclasses.dataclass(frozen=True)
class Loose(Flat):
    """Says 1 and clips nothing."""

    def clip(self, v):
        return np.asarray(v, float)

    def factors(self, norms):
        return np.ones_like(np.asarray(norms, float))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['unit']}-{s['observer']}")
def test_a_bound_of_ones_own_is_never_certified(settings, linear, tmp_path):
    with pytest.raises(SordinoError, match="for which nothing is proven"):
        train(linear(), toy(), plan(**settings), method=own(Own(clip=Loose(1.0))), out=tmp_path / "run", options=HERE)


def test_a_gaussian_answer_beside_a_laplace_sum_is_refused(linear, tmp_path):
    """Charged as one Laplace it printed 0.2 and reached 0.33 to 0.72."""
    from sordino.privacy.bounds import L1

    rule = Own(Queries(None, CentredBit(0.5)), clip=L1(1.0))
    with pytest.raises(BadInput, match="beside a Laplace sum"):
        settings = {"unit": "client", "observer": "public", "mechanism": "laplace"}
        train(linear(), toy(), plan(**settings), method=own(rule), out=tmp_path / "run", options=HERE)


@dataclasses.dataclass(frozen=True)
class Boaster:
    """Declares a norm of 0.01 and answers with 5."""

    share: float = 0.1
    norm = 0.01

    def encode(self, norms, bound):
        return np.full(1, 5.0 * len(norms))


def test_an_answer_is_clipped_to_the_norm_that_its_query_declares():
    grid = FixedPoint.for_bound(Flat(0.01), 10)
    assert grid.decode(answer_codes(Boaster(), np.ones(7), 1.0, grid)) == pytest.approx(0.07, rel=1e-9)


# ---- schedules, sizes and relations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("sizes", [(64, 200), (20, 90, 700), (9, 10, 11)])
def test_an_uneven_schedule_charges_one_client_for_its_whole_run(start, sizes):
    """With the worst size chosen round by round, 8.04 was printed where 9.466 is the truth."""
    own_plan = plan(
        clients=len(sizes), method="dp-fedddc", unit="example", observer="server", rounds=6, batch_size=64,
        multiplier=35.0, options={"mu_start": start},
    )  # fmt: skip
    terms = settle(own_plan, PublicSizes(len(sizes), np.array(sizes)))
    scheme, truth = own_plan.scheme, []
    for n in sizes:
        rounds = [scheme.client_round(terms.multiplier_of(t), n) for t in range(1, 7)]
        truth.append(accounting.epsilon(events.composed(rounds), own_plan.delta, terms.relation).epsilon)
    assert terms.spent.epsilon >= max(truth) * (1 - 1e-9)
    print(f"printed {terms.spent.epsilon:.4g}, largest of any client {max(truth):.4g}")


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['unit']}-{s['observer']}")
def test_public_sizes_and_add_remove_are_never_claimed_together(settings):
    """Steps and rates follow the number of records: one added record of gradient 0 was told at 2.70 where 1.05 was printed."""
    assert plan(**settings).scheme.relation != "add-remove"
    with pytest.raises(BadInput, match="add-remove"):
        plan(**settings, relation="add-remove")


def on_demand(true, declared):
    rng = np.random.Generator(np.random.PCG64(0))

    def make(k):
        return rng.normal(size=(true(k), 5)).astype(np.float32), np.arange(true(k)) % 3

    return Federation.on_demand(12, make, declared, classes=3)


def test_every_clients_declared_size_is_accounted_for():
    """Client 0's size was taken for all: 1.07 printed, 8.39 true."""
    local = plan(unit="example", observer="server", multiplier=4.0)
    sizes = lambda k: 200 if k == 0 else 9  # noqa: E731
    terms = settle(local, PublicSizes.of(on_demand(sizes, sizes)))
    small = local.scheme.client_round(4.0, 9)
    assert terms.spent.epsilon >= accounting.epsilon(events.repeated(small, 3), 1e-5, terms.relation).epsilon


def test_a_false_declaration_is_refused_where_the_data_is(linear, tmp_path):
    """With 200 declared and 9 held, 1.07 was printed and 223 was true."""
    local = plan(unit="example", observer="server", multiplier=4.0)
    with pytest.raises(NotPrivate, match="declares 200 records and holds 9"):
        train(linear(), on_demand(lambda k: 9, 200), local, out=tmp_path / "run", options=HERE)
    with pytest.raises(BadInput, match="is not declared"):
        assert settle(local, PublicSizes.of(on_demand(lambda k: 9, None))).spent


def test_the_rate_that_draws_is_the_rate_that_is_charged():
    terms = settle(plan(unit="example", observer="public", batch_size=40), PublicSizes.of(toy()))
    scheme = terms.scheme
    assert isinstance(scheme, Pooled)
    drawn = np.mean([len(Draws(terms.plan).records(t, 0, 4000, scheme.rate(terms.public))) for t in range(200)]) / 4000
    assert terms.round_event(1).sampling_probability == scheme.rate(terms.public) == pytest.approx(drawn, rel=0.05)


# ---- draws -----------------------------------------------------------------------------------------------------------


def test_secure_draws_do_not_follow_from_the_seed():
    """Cohorts and records came from the seed, which the report prints: 13.3 for the busiest record where 4 was printed."""
    secret = plan(unit="client", observer="public", cohort=6, secure=True)
    first, second = Draws(secret), Draws(secret)
    told = [public_cohort(secret, t).tolist() for t in range(1, 30)]
    assert [first.cohort(t).tolist() for t in range(1, 30)] != told
    assert [first.cohort(t).tolist() for t in range(1, 30)] != [second.cohort(t).tolist() for t in range(1, 30)]
    assert [first.cohort(t).tolist() for t in range(1, 30)] == [first.cohort(t).tolist() for t in range(1, 30)]
    records = Draws(plan()).records(1, 0, 500, 0.5)
    assert not np.array_equal(first.records(1, 0, 500, 0.5), records)
    seen = plan(unit="client", observer="server", sampling="fixed", cohort=6, secure=True)
    assert np.array_equal(Draws(seen).cohort(3), public_cohort(seen, 3))  # the server sees it anyway, and it is counted


def test_no_secret_draw_reaches_the_run_folder(linear, tmp_path):
    secret = plan(unit="example", observer="secagg-server", secure=True, seed=7)
    runs = [train(linear(), toy(), secret, out=tmp_path / name, options=HERE) for name in "ab"]
    assert not torch.equal(runs[0].model.weight, runs[1].model.weight)
    assert not any(run.statement.rehearsal for run in runs)


# ---- ledgers and crashes ---------------------------------------------------------------------------------------------


def cut_short(linear, folder, wanted, federation, at=2):
    class Cut(Exception):
        pass

    def cut(progress):
        if progress.round == at:
            raise Cut

    with pytest.raises(Cut):
        train(linear(), federation, wanted, out=folder, options=HERE, on_round=cut)


def test_a_checkpoint_without_its_ledger_is_refused(linear, tmp_path):
    """The ledger was made anew in silence, the round ran again, and the same epsilon was printed."""
    wanted = plan(unit="client", observer="public")
    cut_short(linear, tmp_path / "run", wanted, toy())
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with pytest.raises(BadInput, match="no ledger.jsonl"):
        train(linear(), toy(), wanted, out=tmp_path / "run", options=HERE, resume=True)


@pytest.mark.parametrize("other", [{"size": 21}, {"seed": 1}], ids=["sizes", "records"])
def test_a_run_goes_on_with_its_own_population_only(other, linear, tmp_path):
    """FedMAP committed order 6 and counted at order 4, because the sizes had changed."""
    wanted = plan(unit="client", observer="public")
    cut_short(linear, tmp_path / "run", wanted, toy())
    with pytest.raises(BadInput, match="is not the data that the run"):
        train(linear(), toy(**other), wanted, out=tmp_path / "run", options=HERE, resume=True)
    train(linear(), toy(), wanted, out=tmp_path / "run", options=HERE, resume=True)


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = torch.nn.Linear(5, 16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.nn.functional.dropout(torch.relu(self.layer(x)), 0.5, self.training))


@pytest.mark.parametrize("observer", ["secagg-server", "server"])
def test_a_seeded_resume_repeats_dropout_too(observer, tmp_path):
    """Two releases shared their noise and differed by 6e-3: the ledger said grant, reuse."""
    wanted, models = plan(unit="example", observer=observer, clients=12, rounds=4), []

    def make():
        torch.manual_seed(3)
        return Dropping()

    whole = train(make(), toy(), wanted, out=tmp_path / "whole", options=HERE)
    models.append(whole.model.out.weight)
    cut_short(make, tmp_path / "cut", wanted, toy())
    torch.rand(7)  # the generator stands elsewhere
    models.append(train(make(), toy(), wanted, out=tmp_path / "cut", options=HERE, resume=True).model.out.weight)
    assert torch.equal(*models)
    with Ledger.read(tmp_path / "cut" / "ledger.jsonl") as ledger:
        assert len(list(ledger)) >= 4


# ---- a user's own model ----------------------------------------------------------------------------------------------


class FirstBatch(torch.nn.Module):
    """Initialises a buffer from the first batch that it sees."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 3)
        self.register_buffer("shift", torch.zeros(5))
        self.fresh = True

    def forward(self, x):
        if self.fresh:
            self.shift.copy_(x[0])
            self.fresh = False
        return self.layer(x - self.shift)


class Frozen(torch.nn.Module):
    """Writes a record into a parameter that is not trained."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 3)
        self.memory = torch.nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self, x):
        self.memory.data.copy_(x[0])
        return self.layer(x)


@pytest.mark.parametrize("make", [FirstBatch, Frozen])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['unit']}-{s['observer']}")
def test_no_record_stays_in_the_model(make, settings, tmp_path):
    """A record left in model.safetensors exactly, with epsilon 1 printed."""
    from safetensors.torch import load_file

    federation = toy()
    try:
        train(make(), federation, plan(**settings), out=tmp_path / "run", options=HERE)
    except SordinoError:
        return  # refused
    kept = load_file(tmp_path / "run" / "model.safetensors")
    for name in ("shift", "memory"):
        assert name not in kept or not kept[name].any()


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_classes_that_are_read_from_private_labels_are_said(linear, tmp_path):
    """One record of class 8 gave nine outputs, and nobody was told."""
    x = np.ones((4, 5), np.float32)
    private = Federation.from_arrays([(x, [0, 1, 2, 1]), (x, [0, 0, 1, 2])])
    wanted = plan(clients=2, unit="example", observer="public")
    told = train(linear(), private, wanted, out=tmp_path / "read", options=HERE)
    assert "number of classes (3) was read from the training labels" in " ".join(told.statement.text().split())
    declared = Federation.from_arrays([(x, [0, 1, 2, 1]), (x, [0, 0, 1, 2])], classes=3)
    silent = train(linear(), declared, wanted, out=tmp_path / "declared", options=HERE)
    assert "read from the training labels" not in " ".join(silent.statement.text().split())
    assert json.loads((tmp_path / "read" / "statement.json").read_text())["notes"]


def test_every_certified_method_passes_the_check_of_rules():
    for method in METHODS.values():
        if method.private:
            made = plan(
                **(
                    {"unit": str(method.units[0]), "method": method.name, "observer": str(method.observers[-1])}
                    | ({"multiplier": None, "epsilon": 4.0} if method.scheme else {})
                )
            )
            from sordino.methods import RuleContext
            from sordino.schemes import certified

            terms = settle(made, PublicSizes.of(toy()))
            certified.check_rule(terms, method.build(RuleContext(made, (5, 3), terms.units, 1.0)))
