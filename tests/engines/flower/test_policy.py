"""The holder's veto: its policy, and what its records may be used for in all."""

from __future__ import annotations

import pytest

from sordino import Plan
from sordino.engines.flower.allowance import Allowance
from sordino.engines.flower.holder_run import terms_of
from sordino.engines.flower.part import Facts
from sordino.engines.flower.policy import Policy, Refused
from sordino.errors import BadInput

FACTS = Facts("toy", 3, (5,), (200, 300, 400))


def terms(**settings):
    base = {"data": "toy", "clients": 3, "model": "linear", "method": "adact", "unit": "example", "epsilon": 4.0,
            "rounds": 5, "batch_size": 50, "secure": True, "survivors": 2}  # fmt: skip
    return terms_of(Plan(**(base | settings)), FACTS)


def test_the_default_policy_takes_a_certified_plan_with_secure_noise():
    Policy().check(terms())


@pytest.mark.parametrize(
    ("policy", "settings", "reason"),
    [
        ({"epsilon": 2.0}, {}, "epsilon 4 is more than the 2"),
        ({}, {"epsilon": 9.0}, "more than the 8"),
        ({"delta": 1e-6}, {}, "delta"),
        ({"units": ("client",)}, {}, "unit example is not allowed"),
        ({}, {"observer": "public", "survivors": None}, "observer public is not allowed"),
        ({"methods": ("quantile",)}, {}, "method adact is not allowed"),
        ({}, {"variant": "published"}, "variant published is not allowed"),
        ({}, {"secure": False}, "seeded"),
        ({}, {"method": "fedmap", "survivors": None, "metanet": "/etc/hostname"}, "no file that a server names"),
        ({"least": 3}, {}, "divided among 2 clients"),
        (
            {},
            {
                "method": "fedavg",
                "unit": "client",
                "epsilon": None,
                "secure": False,
                "survivors": None,
                "sampling": "none",
            },
            "not",
        ),
    ],
)
def test_each_rule_refuses_with_a_sentence_for_the_other_side(policy, settings, reason):
    with pytest.raises(Refused, match=reason):
        Policy(**policy).check(terms(**settings))


def test_a_policy_file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('epsilon = 3.0\nmethods = ["adact", "quantile"]\nsecure = false\n')
    assert Policy.load(path) == Policy(epsilon=3.0, methods=("adact", "quantile"), secure=False)
    for wrong in ("epsilon = -1", "epsilonn = 3", 'methods = ["nonsense"]', "secure = 1", "=", 'units = ["house"]'):
        path.write_text(wrong)
        with pytest.raises(BadInput):
            Policy.load(path)
    with pytest.raises(BadInput, match="cannot be read"):
        Policy.load(tmp_path / "missing.toml")


def test_runs_add_up_and_the_last_one_is_refused(tmp_path):
    policy = Policy(epsilon=8.0, delta=1e-4)
    book = Allowance(tmp_path / "allowance.jsonl")
    book.reserve("a", 4.0, 1e-5, policy)
    book.reserve("b", 3.5, 1e-5, policy)
    with pytest.raises(Refused, match="on top of 7.5"):
        book.reserve("c", 1.0, 1e-5, policy)
    book.reserve("d", 0.5, 1e-5, policy)
    assert book.epsilon == 8.0
    book.close()


def test_deltas_add_up_too(tmp_path):
    policy = Policy(epsilon=100.0, delta=2e-5)
    book = Allowance(tmp_path / "allowance.jsonl")
    book.reserve("a", 1.0, 1e-5, policy)
    book.reserve("b", 1.0, 1e-5, policy)
    with pytest.raises(Refused):
        book.reserve("c", 1.0, 1e-9, policy)
    book.close()


def test_what_was_reserved_survives_and_the_same_run_costs_nothing_again(tmp_path):
    policy, path = Policy(epsilon=5.0), tmp_path / "allowance.jsonl"
    book = Allowance(path)
    book.reserve("a", 4.0, 1e-5, policy)
    book.close()
    again = Allowance(path)
    again.reserve("a", 4.0, 1e-5, policy)
    with pytest.raises(Refused, match="another epsilon"):
        again.reserve("a", 1.0, 1e-5, policy)
    with pytest.raises(Refused):
        again.reserve("b", 4.0, 1e-5, policy)
    again.close()


def test_a_changed_file_is_found_and_a_torn_line_is_put_to_rest(tmp_path):
    policy, path = Policy(epsilon=50.0), tmp_path / "allowance.jsonl"
    book = Allowance(path)
    for run in "abc":
        book.reserve(run, 4.0, 1e-5, policy)
    book.close()
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    for wrong in (text.replace(b"4.0", b"0.1", 1), b"".join(lines[1:]), b"".join([lines[0], lines[2]]), b"x\n" + text):
        path.write_bytes(wrong)
        with pytest.raises(BadInput, match="was changed"):
            Allowance(path)
    path.write_bytes(text + b'{"seq":3,"kind":"res')
    healed = Allowance(path)
    assert set(healed.runs) == set("abc")
    healed.reserve("d", 1.0, 1e-5, policy)
    healed.close()
    last = Allowance(path)
    assert set(last.runs) == set("abcd")
    last.close()


def test_one_process_at_a_time(tmp_path):
    book = Allowance(tmp_path / "allowance.jsonl")
    with pytest.raises(BadInput, match="Another process"):
        Allowance(tmp_path / "allowance.jsonl")
    book.close()


def test_code_of_ones_own_is_pinned_to_its_source(tmp_path, monkeypatch):
    import hashlib

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "pinned_net.py"
    source.write_text("raise RuntimeError('imported')\n")
    pin = hashlib.sha256(source.read_bytes()).hexdigest()
    policy = Policy(code=(f"pinned_net:make#sha256={pin}",))
    policy.check_code({"model": "pinned_net:make"})  # the hash is taken without running it
    source.write_text("raise RuntimeError('imported')  # and changed\n")
    with pytest.raises(Refused, match="pinned_net:make is not the code that this holder's policy is pinned to"):
        policy.check_code({"model": "pinned_net:make"})
    with pytest.raises(Refused, match="the policy must list it"):
        policy.check_code({"model": "pinned_net:other"})
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        Policy(code=("pinned_net:make#sha256=abc",))


def test_code_without_a_pin_is_refused_with_the_line_to_write(tmp_path, monkeypatch):
    import hashlib

    monkeypatch.chdir(tmp_path)
    source = tmp_path / "loose_net.py"
    source.write_text("raise RuntimeError('imported')\n")
    pin = hashlib.sha256(source.read_bytes()).hexdigest()
    with pytest.raises(BadInput, match=f'write "loose_net:make#sha256={pin}"'):
        Policy(code=("loose_net:make",))
    with pytest.raises(BadInput, match="not found here"):
        Policy(code=("nowhere_net:make",))
