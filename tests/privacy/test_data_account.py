"""The account of one's own records: it adds up, refuses, survives a crash, and counts runs at the same time."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from populations import toy
from sordino import Plan, train
from sordino.engines import EngineOptions
from sordino.errors import BadInput, BudgetRefused
from sordino.privacy.data_account import DataAccount, beside


def test_runs_add_up_and_the_same_run_costs_once(tmp_path):
    book = DataAccount(tmp_path / "account.jsonl")
    book.enter("a", 1.5, 1e-5)
    book.enter("b", 2.0, 1e-5)
    total = book.enter("a", 1.5, 1e-5)
    assert (total.epsilon, total.delta, len(total.entries)) == (3.5, 2e-5, 2)
    assert "2 runs, epsilon 3.5 and delta 2e-05 in all" in total.sentence()
    with pytest.raises(BadInput, match="with another epsilon"):
        book.enter("a", 1.0, 1e-5)


def test_the_limit_is_kept(tmp_path):
    book = DataAccount(tmp_path / "account.jsonl")
    book.set_limit(3.0)
    book.enter("a", 2.0, 1e-5)
    with pytest.raises(BudgetRefused, match="epsilon 2 would come on top of 2 of earlier runs .* allows 3 in all"):
        book.enter("b", 2.0, 1e-5)
    with pytest.raises(BudgetRefused, match="not private"):
        book.enter("c", math.inf, 1e-5)
    assert book.enter("d", 1.0, 1e-5).epsilon == 3.0
    book.set_limit(10.0)
    assert book.enter("b", 2.0, 1e-5).epsilon == 5.0


def test_a_run_without_privacy_makes_the_sum_infinite(tmp_path):
    book = DataAccount(tmp_path / "account.jsonl")
    book.enter("a", 2.0, 1e-5)
    total = book.enter("b", math.inf, 1e-5)
    assert math.isinf(total.epsilon) and "at least one was not private" in total.sentence()


def test_a_torn_line_counts_for_nothing_and_a_changed_one_is_found(tmp_path):
    path = tmp_path / "account.jsonl"
    DataAccount(path).enter("a", 2.0, 1e-5)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":1,"kind":"run","eps')  # a process died while it wrote: its run never began
    assert DataAccount(path).enter("b", 1.0, 1e-5).epsilon == 3.0
    path.write_bytes(whole.replace(b"2.0", b"0.2"))
    with pytest.raises(BadInput, match="line 1 of .* was changed"):
        DataAccount(path).total()


def test_runs_at_the_same_time_count_each_other(tmp_path):
    code = (
        "import sys; from sordino.privacy.data_account import DataAccount\n"
        "for k in range(25): DataAccount('account.jsonl').enter(f'{sys.argv[1]}-{k}', 0.25, 1e-6)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=tmp_path) for n in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]
    assert DataAccount(tmp_path / "account.jsonl").total().epsilon == 75 * 0.25


def test_training_counts_before_it_grants_and_a_resumed_run_counts_once(linear, tmp_path):
    plan = Plan(method="dp-fedavg", epsilon=2.0, rounds=2)
    here, path = EngineOptions("in-process"), tmp_path / "account.jsonl"
    result = train(linear(), toy(clients=3), plan, out=tmp_path / "a", options=here, account=path)
    assert "1 run, epsilon 2 and delta 1e-05" in result.statement.account and "1 run," in result.statement.text()
    train(linear(), toy(clients=3), plan, out=tmp_path / "a", options=here, account=path, resume=True)
    assert len(DataAccount(path).total().entries) == 1
    DataAccount(path).set_limit(3.0)
    with pytest.raises(BudgetRefused):
        train(linear(), toy(clients=3), plan, out=tmp_path / "b", options=here, account=path)
    assert not (tmp_path / "b" / "ledger.jsonl").exists()


def test_the_account_lies_beside_the_data(tmp_path):
    assert beside(tmp_path / "t.csv").name == "t.csv.account.jsonl"
    assert beside(tmp_path) == tmp_path / ".sordino-account.jsonl"
