"""A grant that was given is in the ledger, whatever happens to the process; a ledger that was touched is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput, BudgetRefused, SordinoError
from sordino.privacy import events
from sordino.privacy import ledger_format as lines
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.filter import GdpFilter, NoBudget, RdpFilter, ScheduleFilter
from sordino.privacy.ledger import Ledger

ABOUT = {"unit": "client", "relation": "add-remove", "observer": "public"}
PLAN = "d1" * 16
ROUND = events.poisson(0.1, events.gaussian(2.0))


def gdp() -> GdpFilter:
    return GdpFilter(2.0, 1e-5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "ledger.jsonl"


@pytest.fixture
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def test_grants_survive_closing(path):
    with Ledger.create(path, PLAN, RdpFilter(4.0, 1e-5, 8.0), ABOUT) as made:
        first = made.request(ROUND, 1)
        made.request(ROUND, 2)
        state, head = made.filter.to_json(), made.head
    assert (first.round, first.attempt, first.event, first.seq) == (1, 1, ROUND, 1)
    with Ledger.open(path, PLAN, head=head) as again:
        assert again.filter.to_json() == state and again.head == head
        assert [grant.round for grant in again] == [1, 2] and again.rounds == 2 and again.last == again.grants[1]
        assert again.about == ABOUT and again.plan_digest == PLAN
        assert again.granted(2).event == ROUND and again.granted(3) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["ledger.jsonl"]


def test_the_line_is_on_disk_before_the_grant_returns(path, monkeypatch):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    seen, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (sync(fd), seen.append(path.read_bytes())))
    made.request(events.gaussian(9.0), 1)
    assert len(seen) == 1 and seen[0] == path.read_bytes() and b'"round":1' in seen[0].splitlines()[-1]


def test_a_refusal_writes_and_charges_nothing(path):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    made.request(events.gaussian(3.0), 1)
    before, state = path.read_bytes(), made.filter.to_json()
    for event in (events.gaussian(1.0), events.nonprivate("raw norms")):
        with pytest.raises(BudgetRefused):
            made.request(event, 2)
    with pytest.raises(BadInput):
        made.request(events.poisson(0.5, events.gaussian(50.0)), 2)
    assert path.read_bytes() == before and made.filter.to_json() == state
    made.request(events.gaussian(50.0), 2)  # a smaller request may still be asked for


def test_a_round_is_requested_once(path):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    made.request(events.gaussian(9.0), 1)
    made.request(events.gaussian(9.0), 1, step=1)
    with pytest.raises(BadInput, match="use resume"):
        made.request(events.gaussian(9.0), 1)
    for bad in (-1, 1.5, True, None):
        with pytest.raises(BadInput, match="round must be"):
            made.request(events.gaussian(9.0), bad)
    assert made.rounds == 1 and len(made.grants) == 2


def test_resume_reuses_a_seeded_grant_and_charges_a_secure_one_again(path):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    made.request(events.gaussian(5.0), 1)
    made.request(events.gaussian(6.0), 2)
    spent = made.filter.spent
    made.close()

    made = Ledger.open(path, PLAN)
    assert made.resume(3, secure=False) is None and made.resume(3, secure=True) is None
    again = made.resume(2, secure=False, event=events.gaussian(6.0))
    assert again.reused and again.attempt == 1 and again.event == events.gaussian(6.0)
    assert made.filter.spent == spent and len(made.grants) == 2
    with pytest.raises(BadInput, match="another release"):
        made.resume(2, secure=False, event=events.gaussian(5.9))
    more = made.resume(2, secure=True)
    assert more.attempt == 2 and not more.reused and more.event == events.gaussian(6.0)
    assert made.filter.spent == pytest.approx(spent + 1 / 36) and made.rounds == 2
    state = made.filter.to_json()
    made.close()

    with Ledger.open(path, PLAN) as made:
        assert made.filter.to_json() == state and made.granted(2).attempt == 2
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        assert kinds == ["header", "grant", "grant", "reuse", "grant"]


def test_a_round_that_is_given_up_stays_paid_for_and_is_counted_once(path):
    made = Ledger.create(path, PLAN, ScheduleFilter([(ROUND, 3)], 1.0, 1e-5), ABOUT)
    made.request(ROUND, 1)
    with pytest.raises(BadInput, match="Round 2 was never granted"):
        made.forfeit(2)
    spent = made.filter.share
    made.forfeit(1)
    made.forfeit(1)
    assert made.lost == 1 and made.filter.share == spent
    made.close()
    with Ledger.open(path, PLAN) as made:
        made.forfeit(1)
        assert made.lost == 1 and made.filter.share == spent and made.granted(1) is not None
        assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["header", "grant", "lost"]
    assert Ledger.read(path).lost == 1


def test_a_secure_resumption_is_refused_when_the_budget_is_gone(path):
    made = Ledger.create(path, PLAN, ScheduleFilter([(ROUND, 2)], 1.0, 1e-5), ABOUT)
    made.request(ROUND, 1)
    made.request(ROUND, 2)
    with pytest.raises(BudgetRefused):
        made.resume(2, secure=True)
    assert made.resume(2, secure=False).reused


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_ledger_of_another_plan_is_refused(path):
    Ledger.create(path, PLAN, gdp(), ABOUT).close()
    for look in (Ledger.open, Ledger.read):
        with pytest.raises(BadInput, match="belongs to another plan"):
            look(path, "e2" * 16)
    with pytest.raises(BadInput, match="already"):
        Ledger.create(path, PLAN, gdp(), ABOUT)
    with pytest.raises(BadInput, match="cannot be opened"):
        Ledger.open(path.with_name("none.jsonl"), PLAN)
    assert [p.name for p in path.parent.iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize(
    "change",
    [{"unit": "level"}, {"observer": None}, {"relation": "swap"}, {"relation": "replace-one"}, {"x": float("nan")}],
)
def test_what_it_is_about_is_checked(path, change):
    with pytest.raises(BadInput):
        Ledger.create(path, PLAN, gdp(), ABOUT | change)
    assert not path.exists()


def test_one_writer_at_a_time_but_anyone_may_look(path):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    made.request(events.gaussian(9.0), 1)
    script = (
        "import sys; from sordino.errors import BadInput; from sordino.privacy.ledger import Ledger\n"
        "print(len(Ledger.read(sys.argv[1]).grants))\n"
        "try: Ledger.open(sys.argv[1], sys.argv[2])\n"
        "except BadInput as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", script, path, PLAN], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == "1" and said.splitlines()[1].startswith("Another process is writing the ledger")
    with pytest.raises(BadInput, match="Another process"):
        Ledger.open(path, PLAN)
    with pytest.raises(SordinoError, match="not open for writing"):
        Ledger.read(path).request(events.gaussian(9.0), 2)
    made.close()
    Ledger.open(path, PLAN).close()


def test_a_forked_worker_can_neither_write_nor_keep_the_lock(path):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    hold, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            made.request(events.gaussian(9.0), 1)
            os._exit(1)
        except SordinoError:
            os.read(hold, 1)
            os._exit(0)
    with pytest.raises(BadInput, match="Another process"):  # the parent's own lock is untouched
        Ledger.open(path, PLAN)
    time.sleep(0.05)
    made.close()
    try:
        Ledger.open(path, PLAN).close()  # though the worker is still there
    finally:
        os.write(go, b"x")
        assert os.waitpid(child, 0)[1] == 0
        os.close(hold)
        os.close(go)


# --- crashes ----------------------------------------------------------------------------------------------------------

LOOP = """
import sys
from sordino.privacy import events
from sordino.privacy.filter import GdpFilter
from sordino.privacy.ledger import Ledger
path, plan, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = Ledger.open(path, plan)
print("ready", flush=True)
for round in range(start, start + 100000):
    made.request(events.gaussian(1000.0 + round), round)
    print(round, flush=True)
"""


def test_kill_9_loses_no_grant(path):
    Ledger.create(path, PLAN, GdpFilter(8.0, 1e-5), ABOUT).close()
    chance, given_out, start = random.Random(4), set(), 0
    for _ in range(6):
        command = [sys.executable, "-c", LOOP, path, PLAN, str(start)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline() == "ready\n"
        said = [
            worker.stdout.readline() for _ in range(chance.randrange(5, 12))
        ]  # some grants, however busy the machine
        time.sleep(chance.uniform(0.0, 0.02))
        worker.send_signal(signal.SIGKILL)
        said += worker.stdout.read().split("\n")[:-1]  # whole lines only
        worker.stdout.close()
        worker.wait()
        given_out |= {int(line) for line in said}
        with Ledger.open(path, PLAN) as again:
            recorded = [grant.round for grant in again]
        assert given_out <= set(recorded) and len(set(recorded)) == len(recorded)
        start = max(recorded, default=start - 1) + 1
    assert len(given_out) > 20


def build(path, count=4) -> tuple[bytes, list[float]]:
    """A ledger's bytes and what was spent after each line."""
    spent = [0.0]
    with Ledger.create(path, PLAN, gdp(), ABOUT) as made:
        for round in range(count):
            made.request(events.gaussian(7.0 + round), round, clients=[3, 14, 1500 + round])
            spent.append(made.filter.spent)
    return path.read_bytes(), spent


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cut_anywhere_it_never_counts_less_than_its_whole_lines(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "ledger.jsonl"
    text, spent = build(path)
    first = text.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(text)))
    junk = data.draw(st.sampled_from([b"", b"", b"\0" * 50, b"\0" * 9 + b"\n"])) if cut < len(text) else b""
    path.write_bytes(text[:cut] + junk)
    whole = text[:cut].count(b"\n") - 1
    looked = Ledger.read(path)
    with Ledger.open(path, PLAN) as again:
        assert whole <= len(again.grants) <= whole + 1
        assert again.filter.spent == spent[len(again.grants)] == looked.filter.spent
        assert [grant.round for grant in again] == list(range(len(again.grants)))
        assert all(list(grant.clients) == [3, 14, 1500 + grant.round] for grant in again)
        assert not any(grant.recovered for grant in again.grants[:whole])
        again.request(events.gaussian(20.0), 99)
        state = again.filter.to_json()
    with Ledger.open(path, PLAN) as third:  # the repair is itself a sound ledger
        assert third.filter.to_json() == state and third.last.round == 99
    assert [p.name for p in path.parent.iterdir()] == ["ledger.jsonl"]


def test_a_torn_line_that_shows_its_event_is_counted_and_kept(path):
    text, spent = build(path)
    last = text.rindex(b"\n", 0, -1) + 1
    torn = text[last : text.index(b',"prev"', last)]
    path.write_bytes(text[:last] + torn)
    with Ledger.open(path, PLAN) as again:
        assert again.filter.spent == spent[4] and again.last.recovered and again.last.round == 3
        assert list(again.last.clients) == [3, 14, 1503]
        assert again.resume(3, secure=True).attempt == 2
    row = json.loads(path.read_bytes().splitlines()[4])
    assert row["kind"] == "torn" and lines._unpack(row["bytes"]) == torn


def test_a_torn_line_that_shows_nothing_is_left_out_and_kept(path):
    text, spent = build(path)
    last = text.rindex(b"\n", 0, -1) + 1
    path.write_bytes(text[:last] + text[last : last + 40])
    with Ledger.open(path, PLAN) as again:
        assert again.filter.spent == spent[3] and len(again.grants) == 3
        again.request(events.gaussian(10.0), 3)
    row = json.loads(path.read_bytes().splitlines()[4])
    assert row["kind"] == "torn" and "event" not in row and lines._unpack(row["bytes"]) == text[last : last + 40]


def test_a_crash_during_the_repair_changes_nothing(path, monkeypatch):
    text, spent = build(path)
    path.write_bytes(text[:-30])

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(SordinoError, match="could not be written"):
            Ledger.open(path, PLAN)
    assert path.read_bytes() == text[:-30] and len(list(path.parent.iterdir())) == 1
    with Ledger.open(path, PLAN) as again:
        assert again.filter.spent == spent[4]


@pytest.mark.parametrize("written", [0, 30, 150, 10_000])
def test_a_full_disk_stops_the_round_and_the_ledger(path, monkeypatch, written):
    _, spent = build(path)
    made = Ledger.open(path, PLAN)

    def full(fd, data):
        os.write(fd, data[:written])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(lines, "write", full)
        with pytest.raises(SordinoError, match="No space left on device.*no round may run"):
            made.request(events.gaussian(12.0), 4)
    with pytest.raises(SordinoError, match="not open for writing"):
        made.request(events.gaussian(12.0), 5)
    with Ledger.open(path, PLAN) as again:
        assert len(again.grants) in (4, 5) and again.filter.spent >= spent[4]


def test_an_interrupt_while_writing_stops_the_ledger(path, monkeypatch):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)

    def interrupted(fd, data):
        os.write(fd, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(lines, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.request(events.gaussian(12.0), 0)
    with Ledger.open(path, PLAN) as again:
        assert len(again.grants) == 1


# --- tampering --------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_found_or_costs_nothing(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flip") / "ledger.jsonl"
    text, spent = build(path)
    where = data.draw(st.integers(0, len(text) - 1))
    value = data.draw(st.integers(1, 255).filter(lambda b: b != text[where]))
    path.write_bytes(text[:where] + bytes([value]) + text[where + 1 :])
    try:
        with Ledger.open(path, PLAN) as again:
            assert again.filter.spent >= spent[4]
            assert where == len(text) - 1  # only the last newline: a torn line, and counted
    except BadInput as error:
        assert "\n" not in str(error).replace(str(path), "")
        line = text[:where].count(b"\n") + 1
        if text[where : where + 1] != b"\n" and line > 1:
            assert f"Line {line} of the ledger" in str(error) or value == 10


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lines_moved_removed_doubled_or_borrowed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("move")
    text, _ = build(folder / "other.jsonl")
    path = folder / "ledger.jsonl"
    with Ledger.create(path, PLAN, gdp(), ABOUT | {"unit": "example"}) as made:
        for round in range(5):
            made.request(events.gaussian(9.0), round)
        head = made.head
    rows = path.read_bytes().splitlines(keepends=True)
    changed = list(rows)
    what = data.draw(st.sampled_from(["swap", "remove", "double", "borrow"]))
    i, j = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    if what == "swap":
        changed[i], changed[i + 1] = changed[i + 1], changed[i]
    elif what == "remove":
        del changed[i]
    elif what == "double":
        changed.insert(i, changed[i])
    else:
        changed[i] = text.splitlines(keepends=True)[j]
    path.write_bytes(b"".join(changed))
    with pytest.raises(BadInput, match=r"Line \d of the ledger .* does not follow"):
        Ledger.open(path, PLAN)
    path.write_bytes(b"".join(rows[:-1]))  # nothing in the file can show this; the checkpoint does
    with pytest.raises(BadInput, match="checkpoint"):
        Ledger.open(path, PLAN, head=head)


@pytest.mark.parametrize("joint, end", [(b" ", b""), (b"\0", b"\n"), (b"\0", b"")])
def test_two_lines_made_one_are_not_a_torn_line(path, joint, end):
    text, _ = build(path)
    at = text.rindex(b"\n", 0, -1)
    path.write_bytes(text[:at] + joint + text[at + 1 : -1] + end)
    with pytest.raises(BadInput, match="Line 4 of the ledger .* cannot be read"):
        Ledger.open(path, PLAN)


def test_a_forged_chain_cannot_exceed_its_own_filter(path):
    """Even lines with right hashes are charged to the filter again."""
    build(path)
    made = Ledger.open(path, PLAN)
    described = events.to_json(events.gaussian(0.5))
    made._chain.append({"kind": "grant", "round": 9, "step": 0, "attempt": 1, "event": described})
    made.close()
    with pytest.raises(BadInput, match="Line 6 .* its filter would not give"):
        Ledger.open(path, PLAN)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"no ledger", b'{"seq":0}\n', b"\xff\xfe\x00" * 20, b"[1]\n"])
def test_other_files_are_refused(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    for look in (lambda: Ledger.open(path, PLAN), lambda: Ledger.read(path)):
        with pytest.raises(BadInput, match="is not a ledger"):
            look()
    assert path.read_bytes() == content


# --- a life of requests, crashes and resumptions ----------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("ask"), st.floats(4, 60)),
    st.tuples(st.just("seeded"), st.integers(0, 12)),
    st.tuples(st.just("secure"), st.integers(0, 12)),
    st.tuples(st.just("crash"), st.integers(0, 400)),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_happens_nothing_granted_is_forgotten(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("life") / "ledger.jsonl"
    made, handed_out, next_round = Ledger.create(path, PLAN, gdp(), ABOUT), [], 0
    for what, value in steps:
        try:
            if what == "ask":
                made.request(events.gaussian(value), next_round)
                handed_out.append(1 / value**2)
                next_round += 1
            elif what in ("seeded", "secure"):
                grant = made.resume(value, secure=what == "secure")
                if grant is not None and not grant.reused:
                    handed_out.append(1 / grant.event.noise_multiplier**2)
            else:  # killed while writing the next line, of which `value` bytes reach the disk
                line, _ = lines.seal(
                    {
                        "seq": made.head["seq"] + 1,
                        "kind": "grant",
                        "round": next_round,
                        "step": 0,
                        "attempt": 1,
                        "event": events.to_json(events.gaussian(1e6)),
                    },
                    made.head["hash"],
                )
                made.close()
                with path.open("ab") as file:
                    file.write(line[: min(value, len(line))])
                made = Ledger.open(path, PLAN)
                next_round += 1
        except BudgetRefused:
            pass
        assert sum(handed_out) <= made.filter.spent * (1 + 1e-12) <= made.filter.mu**2 * (1 + 1e-9)
    made.close()
    assert Ledger.read(path).filter.to_json() == made.filter.to_json()


# --- cohorts and clients ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(ids=st.sets(st.integers(0, 2**40)), seed=st.integers(0, 9))
def test_cohorts_are_packed_and_come_back(ids, seed):
    mixed = np.array(sorted(ids), dtype=np.int64)
    order = np.argsort([(7919 * (i + seed)) % 101 for i in range(len(mixed))])
    costs = [mixed / 3, mixed % 5 / 7, np.full(len(mixed), 0.1), np.where(mixed % 97, 0.5, 0.25)][seed % 4]
    got, paid = lines.cohort(mixed[order], costs[order])
    assert np.array_equal(lines.unpack_ids(json.loads(json.dumps(lines.pack_ids(got)))), mixed)
    assert np.array_equal(np.broadcast_to(lines.unpack_costs(lines.pack_costs(paid)), costs.shape), costs)


def test_cohorts_are_small():
    rng = np.random.default_rng(1)
    assert len(json.dumps(lines.pack_ids(np.arange(1_000_000)))) < 8000
    assert len(json.dumps(lines.pack_ids(np.sort(rng.choice(1_000_000, 1000, replace=False))))) < 3000


@pytest.mark.parametrize("clients", [[1, 1], [-1, 2], [0.5], [[1, 2]], ["a"]])
def test_bad_cohorts(path, clients):
    made = Ledger.create(path, PLAN, gdp(), ABOUT)
    with pytest.raises(BadInput):
        made.request(events.gaussian(9.0), 0, clients=clients)
    assert made.filter.spent == 0 and len(path.read_bytes().splitlines()) == 1


def per_client(path) -> Ledger:
    return Ledger.create(path, PLAN, NoBudget("each client keeps its own"), ABOUT, ClientBudgets(1000, 2.0, 1e-5, 12.0))


def test_clients_are_charged_with_the_grant_and_on_replay(path):
    made = per_client(path)
    price = made.spending.price(ROUND)
    made.request(ROUND, 0, clients=[5, 2, 9])
    made.request(ROUND, 1, clients=[9, 11], costs=[0.25, 0.125])
    checkpoint, head = made.spending.to_arrays(), made.head
    made.request(ROUND, 2, clients=np.arange(1000))
    assert list(made.grants[1].clients) == [9, 11] and list(made.grants[1].costs) == [0.25, 0.125]
    expected = made.spending.to_arrays()["spent"]
    assert expected[[2, 9, 11, 12]] == pytest.approx([2 * price, 2 * price + 0.25, price + 0.125, price])
    made.close()
    with Ledger.open(path, PLAN) as again:
        assert np.array_equal(again.spending.to_arrays()["spent"], expected)
    with Ledger.open(path, PLAN, head=head, spending=ClientBudgets.from_arrays(checkpoint)) as again:
        assert np.array_equal(again.spending.to_arrays()["spent"], expected)  # nobody is charged twice
    with pytest.raises(BadInput, match="does not belong"):
        Ledger.open(path, PLAN, spending=ClientBudgets(1000, 3.0, 1e-5, 12.0))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(BadInput, match="ends before"):
        Ledger.open(path, PLAN, spending=ClientBudgets.from_arrays(checkpoint))


def test_a_cohort_is_charged_as_a_whole_or_not_at_all(path):
    made = per_client(path)
    made.request(ROUND, 0, clients=[7], costs=made.spending.budget * 0.999)
    before, text = made.spending.to_arrays()["spent"], path.read_bytes()
    with pytest.raises(BudgetRefused, match="at least one of its 3 clients"):
        made.request(ROUND, 1, clients=[6, 7, 8])
    with pytest.raises(BadInput, match="name the clients"):
        made.request(ROUND, 1)
    with pytest.raises(BadInput, match="at least 0"):
        made.request(ROUND, 1, clients=[6], costs=float("nan"))
    assert np.array_equal(made.spending.to_arrays()["spent"], before) and path.read_bytes() == text
    able = made.spending.affordable([6, 7, 8], made.spending.price(ROUND))
    made.request(ROUND, 1, clients=np.array([6, 7, 8])[able])
    again = made.resume(1, secure=True)
    assert list(again.clients) == [6, 8]
    assert made.spending.to_arrays()["spent"][6] == pytest.approx(2 * made.spending.price(ROUND))


def test_a_refusing_filter_leaves_the_clients_alone(path):
    budget = ScheduleFilter([ROUND], 1.0, 1e-5)
    made = Ledger.create(path, PLAN, budget, ABOUT, ClientBudgets(10, 2.0, 1e-5, 12.0))
    made.request(ROUND, 0, clients=[1])
    spent = made.spending.to_arrays()["spent"]
    with pytest.raises(BudgetRefused, match="schedule"):
        made.request(ROUND, 1, clients=[2])
    assert np.array_equal(made.spending.to_arrays()["spent"], spent) and budget.granted == 1


def test_opening_and_asking_do_not_slow_down_with_length(path, no_fsync):
    """A smoke alarm, with much room: benchmarks/ledger.py measures."""
    made = Ledger.create(path, PLAN, ScheduleFilter([(ROUND, 10**6)], 8.0, 1e-5), ABOUT)

    def ask(start: int, count: int) -> float:
        begin = time.perf_counter()
        for round in range(start, start + count):
            made.request(ROUND, round)
        return time.perf_counter() - begin

    early = min(ask(0, 500), ask(500, 500))
    ask(1000, 10_000)
    late = min(ask(11_000, 500), ask(11_500, 500))
    assert late < 4 * early + 0.05
    made.close()
    begin = time.perf_counter()
    with Ledger.open(path, PLAN) as again:
        assert again.rounds == 12_000
    assert time.perf_counter() - begin < 2.0


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SordinoError, match="could not be written"):
        Ledger.create(tmp_path / "file" / "ledger.jsonl", PLAN, gdp(), ABOUT)
