"""Whole sums: everybody stays, some leave at each step, somebody lies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sordino.errors import BadInput
from sordino.secagg.collector import Collector, SecureSum
from sordino.secagg.member import Member
from sordino.secagg.roster import NOBODY, Advert, Broken, Roster, TooFew

LENGTH = 50


class Keys:
    """Signing keys of everyone, as a public-key infrastructure would deal them out."""

    def __init__(self, members):
        self.keys = {k: Ed25519PrivateKey.generate() for k in members}

    def of(self, me):
        keys = self.keys

        class Own:
            def sign(self, text):
                return keys[me].sign(text)

            def verify(self, member, text, signature):
                try:
                    keys[member].public_key().verify(signature, text)
                    return True
                except InvalidSignature:
                    return False

        return Own()


def people(n=5, threshold=3, sums=1, session="s", signed=True):
    roster = Roster(session, tuple(range(10, 10 + n)), threshold, sums)
    keys = Keys(roster.members)
    members = {k: Member(roster, k, keys.of(k) if signed else NOBODY) for k in roster.members}
    return roster, members, Collector(roster)


def vectors(members, seed=0):
    rng = np.random.Generator(np.random.PCG64(seed))
    return {k: rng.integers(-(2**55), 2**55, LENGTH) for k in members}


def prepare(members, collector, silent=(), silent_after_keys=()):
    adverts = collector.advertised({k: m.advertise() for k, m in members.items() if k not in silent})
    letters = {k: members[k].share(adverts) for k in adverts if k not in silent_after_keys}
    for k, mine in collector.shared(letters).items():
        members[k].receive(mine)
    return collector.peers


def run(members, collector, values, number=0, lost=(), mute=(), deaf=()):
    """`lost` do not send, `mute` do not confirm, `deaf` do not reveal."""
    total = SecureSum(collector, number, LENGTH)
    for k in collector.peers:
        if k not in lost:
            total.add(k, members[k].mask(number, values[k]))
    survivors = total.closed()
    signatures = {k: members[k].confirm(number, survivors) for k in survivors if k not in mute}
    shares = {k: members[k].reveal(number, signatures) for k in signatures if k not in deaf}
    return total.open(shares), total


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("n", "threshold"), [(2, 2), (3, 2), (5, 3), (9, 9)])
def test_the_sum_is_exact(n, threshold, signed):
    _, members, collector = people(n, threshold, signed=signed)
    values = vectors(members)
    prepare(members, collector)
    total, _ = run(members, collector, values)
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, sum(values.values()))


def test_sums_wrap_around_modulo_two_to_the_64():
    _, members, collector = people(3, 2)
    prepare(members, collector)
    big = np.full(LENGTH, 2**62, np.int64)
    total, _ = run(members, collector, dict.fromkeys(members, big))
    np.testing.assert_array_equal(total, np.full(LENGTH, 3 * 2**62 - 2**64, dtype=object).astype(np.int64))


def test_one_roster_serves_several_sums_with_different_losses():
    _, members, collector = people(5, 3, sums=3)
    prepare(members, collector)
    for number, lost in enumerate([(), (11, 13), (14,)]):
        values = vectors(members, number)
        total, _ = run(members, collector, values, number, lost)
        np.testing.assert_array_equal(total, sum(v for k, v in values.items() if k not in lost))


@pytest.mark.parametrize(
    "leaving",
    [
        {"silent": (10,)},
        {"silent_after_keys": (12,)},
        {"lost": (14,)},
        {"mute": (11,)},
        {"deaf": (11,)},
        {"lost": (10, 11)},
        {"silent": (10,), "lost": (14,)},
        {"silent_after_keys": (10,), "deaf": (12,)},
        {"mute": (10,), "deaf": (11,)},
    ],
)
def test_members_may_leave_at_every_step(leaving):
    _, members, collector = people(5, 3)
    values = vectors(members)
    before = {k: v for k, v in leaving.items() if k.startswith("silent")}
    after = {k: v for k, v in leaving.items() if not k.startswith("silent")}
    peers = prepare(members, collector, **before)
    total, done = run(members, collector, values, **after)
    assert done.survivors == tuple(k for k in peers if k not in leaving.get("lost", ()))
    np.testing.assert_array_equal(total, sum(values[k] for k in done.survivors))


@pytest.mark.parametrize("leaving", [{"lost": (10, 11, 12)}, {"mute": (10, 11, 12)}, {"deaf": (10, 11, 12)}])
def test_too_few_survivors_open_nothing(leaving):
    _, members, collector = people(5, 3)
    prepare(members, collector)
    with pytest.raises(TooFew):
        run(members, collector, vectors(members), **leaving)


@pytest.mark.parametrize("silent", [{"silent": (10, 11, 12)}, {"silent_after_keys": (10, 11, 12)}])
def test_too_few_at_the_start_begin_nothing(silent):
    _, members, collector = people(5, 3)
    with pytest.raises(TooFew):
        prepare(members, collector, **silent)


def test_a_single_masked_vector_looks_uniform_and_carries_nothing_of_the_value():
    """The top nibbles of a masked vector of zeros, and of one of a constant, are spread evenly."""
    for value in (0, 2**60):
        roster = Roster("u", (1, 2), 2)
        members = {k: Member(roster, k) for k in roster.members}
        prepare(members, Collector(roster))
        masked = members[1].mask(0, np.full(40000, value, np.int64))
        counts = np.bincount((masked >> np.uint64(60)).astype(int), minlength=16)
        assert ((counts - 2500) ** 2 / 2500).sum() < 45


def test_the_sum_of_some_is_still_masked():
    """Without shares of the others the server can add what it likes: no subset of masked vectors shows a sum."""
    _, members, collector = people(4, 3)
    prepare(members, collector)
    values = vectors(members)
    masked = {k: members[k].mask(0, values[k]) for k in members}
    for some in ([10], [10, 11], [10, 11, 12], list(members)):
        seen = sum(masked[k] for k in some).view(np.int64)
        assert (seen == sum(values[k] for k in some)).sum() == 0


# ---- lies --------------------------------------------------------------------------------------


def test_a_member_masks_once_for_each_sum():
    _, members, collector = people(3, 2, sums=2)
    prepare(members, collector)
    value = vectors(members)[10]
    members[10].mask(0, value)
    with pytest.raises(Broken, match="masked before"):
        members[10].mask(0, value)
    members[10].mask(1, value)
    for number in (2, -1, True and 7, "0"):
        with pytest.raises(Broken, match="no sum"):
            members[10].mask(number, value)


def test_a_member_confirms_one_list_and_reveals_once():
    _, members, collector = people(5, 3)
    prepare(members, collector)
    for m in members.values():
        m.mask(0, np.zeros(LENGTH, np.int64))
    everyone = tuple(members)
    signatures = {k: m.confirm(0, everyone) for k, m in members.items()}
    with pytest.raises(Broken, match="two different lists"):
        members[10].confirm(0, (10, 11, 12))
    members[10].reveal(0, signatures)
    with pytest.raises(Broken, match="before"):
        members[10].reveal(0, signatures)


def test_a_server_that_shows_two_lists_gets_no_shares():
    """Half are told that 14 is lost, half that it survived: neither half collects enough signatures."""
    _, members, collector = people(5, 3)
    prepare(members, collector)
    for m in members.values():
        m.mask(0, np.zeros(LENGTH, np.int64))
    without, with_all = (10, 11, 12, 13), (10, 11, 12, 13, 14)
    told = {10: without, 11: without, 12: with_all, 13: with_all, 14: with_all}
    signatures = {k: members[k].confirm(0, told[k]) for k in members}
    for k in (10, 11):
        with pytest.raises(TooFew):
            members[k].reveal(0, signatures)


def test_nobody_reveals_both_kinds_of_share():
    _, members, collector = people(5, 3)
    prepare(members, collector)
    for m in members.values():
        m.mask(0, np.zeros(LENGTH, np.int64))
    survivors = (10, 11, 12, 13)
    signatures = {k: members[k].confirm(0, survivors) for k in survivors}
    for k in survivors:
        shares = members[k].reveal(0, signatures)
        seeds = {j: members[k]._shares[j][:32] for j in shares}
        secrets = {j: members[k]._shares[j][32:64] for j in shares}
        assert all(shares[j] == (seeds if j in survivors else secrets)[j] for j in shares)
        assert set(shares) == set(members)


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ((11, 12, 13), "leaves this member out"),
        ((10, 11), "only 2"),
        ((10, 11, 99), "not there"),
        ((10, 10, 11), "not there"),
    ],
)
def test_odd_lists_of_survivors_are_refused(survivors, reason):
    _, members, collector = people(5, 3)
    prepare(members, collector)
    members[10].mask(0, np.zeros(LENGTH, np.int64))
    with pytest.raises(Broken, match=reason):
        members[10].confirm(0, survivors)


def test_signatures_of_others_or_of_other_lists_do_not_count():
    _, members, collector = people(3, 2)
    prepare(members, collector)
    for m in members.values():
        m.mask(0, np.zeros(LENGTH, np.int64))
    right = {k: m.confirm(0, (10, 11, 12)) for k, m in members.items()}
    with pytest.raises(TooFew):
        members[10].reveal(0, {10: right[10], 11: right[12], 12: b"", 99: right[11]})
    members[10].reveal(0, right)


def test_keys_that_a_server_made_up_are_refused():
    """A server that puts its own keys in place of a member's could take the masks off: the signature shows it."""
    roster, members, collector = people(3, 2)
    adverts = {k: m.advertise() for k, m in members.items()}
    own = Member(roster, 11).advertise()
    with pytest.raises(Broken, match="not signed"):
        members[10].share({**adverts, 11: Advert(11, own.letters, own.masks, own.seeds, adverts[11].signature)})


def test_changed_missing_or_doubled_keys_are_refused():
    roster, members, _ = people(3, 2, signed=False)
    adverts = {k: m.advertise() for k, m in members.items()}
    other = Member(roster, 10).advertise()
    for wrong, reason in (
        ({**adverts, 10: other}, "own keys"),
        ({k: adverts[k] for k in (11, 12)}, "own keys"),
        ({10: adverts[10]}, "only 1"),
        ({**adverts, 12: Advert(12, adverts[11].letters, adverts[12].masks, adverts[12].seeds)}, "used twice"),
        ({**adverts, 12: Advert(12, adverts[12].letters, (), adverts[12].seeds)}, "do not fit"),
        ({**adverts, 12: adverts[11]}, "do not fit"),
    ):
        with pytest.raises(Broken, match=reason):
            members[10].share(wrong)
    members[10].share(adverts)
    with pytest.raises(Broken, match="before"):
        members[10].share(adverts)


def test_a_tampered_letter_makes_a_suspect_and_the_sum_succeeds_without_it():
    _, members, collector = people(5, 3)
    adverts = collector.advertised({k: m.advertise() for k, m in members.items()})
    letters = collector.shared({k: m.share(adverts) for k, m in members.items()})
    letters[10][14] = letters[10][14][:-1] + bytes([letters[10][14][-1] ^ 1])
    for k, mine in letters.items():
        members[k].receive(mine)
    assert list(members[10].suspects) == [14]
    values = vectors(members)
    total, _ = run(members, collector, values)
    np.testing.assert_array_equal(total, sum(values.values()))


def test_letters_cannot_be_swapped_between_members_or_rosters():
    _, members, collector = people(3, 2)
    adverts = collector.advertised({k: m.advertise() for k, m in members.items()})
    letters = collector.shared({k: m.share(adverts) for k, m in members.items()})
    members[10].receive({11: letters[10][12], 12: letters[10][11]})
    assert set(members[10].suspects) == {11, 12}


@pytest.mark.parametrize("liar", [10, 11, 12])
def test_wrong_shares_are_found_out_and_the_sum_is_right_all_the_same(liar):
    _, members, collector = people(5, 3)
    prepare(members, collector)
    values = vectors(members)
    total = SecureSum(collector, 0, LENGTH)
    for k in collector.peers:
        if k != 13:  # one is lost, so that both kinds of share are restored
            total.add(k, members[k].mask(0, values[k]))
    survivors = total.closed()
    signatures = {k: members[k].confirm(0, survivors) for k in survivors}
    shares = {k: members[k].reveal(0, signatures) for k in survivors}
    shares[liar] = {j: bytes(32) for j in shares[liar]}
    np.testing.assert_array_equal(total.open(shares), sum(values[k] for k in survivors))
    assert total.liars == {liar}


def test_too_many_wrong_shares_open_nothing():
    _, members, collector = people(5, 3)
    prepare(members, collector)
    values = vectors(members)
    total = SecureSum(collector, 0, LENGTH)
    for k in members:
        total.add(k, members[k].mask(0, values[k]))
    signatures = {k: m.confirm(0, total.survivors) for k, m in members.items()}
    shares = {k: m.reveal(0, signatures) for k, m in members.items()}
    for liar in (10, 11, 12):
        shares[liar] = {j: bytes(32) for j in shares[liar]}
    with pytest.raises(TooFew, match="do not fit"):
        total.open(shares)


def test_one_wrong_share_among_many_is_skipped():
    """With 60 members trying every subset is out of the question; random ones do."""
    _, members, collector = people(60, 31, signed=False)
    prepare(members, collector)
    values = vectors(members)
    total = SecureSum(collector, 0, LENGTH)
    for k in members:
        total.add(k, members[k].mask(0, values[k]))
    signatures = {k: m.confirm(0, total.survivors) for k, m in members.items()}
    shares = {k: m.reveal(0, signatures) for k, m in members.items()}
    shares[10] = {j: bytes(32) for j in shares[10]}
    np.testing.assert_array_equal(total.open(shares), sum(values.values()))
    assert total.liars == {10}


def test_the_server_refuses_what_does_not_fit_and_keeps_the_sum_as_it_was():
    _, members, collector = people(3, 2)
    prepare(members, collector)
    values = vectors(members)
    total = SecureSum(collector, 0, LENGTH)
    masked = {k: members[k].mask(0, values[k]) for k in members}
    total.add(10, masked[10])
    for member, wrong in ((11, masked[11][:-1]), (11, masked[11].astype(float)), (10, masked[10]), (99, masked[11])):
        with pytest.raises(Broken):
            total.add(member, wrong)
    total.add(11, masked[11])
    survivors = total.closed()
    signatures = {k: members[k].confirm(0, survivors) for k in survivors}
    opened = total.open({k: members[k].reveal(0, signatures) for k in survivors})
    np.testing.assert_array_equal(opened, values[10] + values[11])


# ---- state -------------------------------------------------------------------------------------


def test_a_member_goes_on_from_disk_at_every_step_and_remembers_what_it_said():
    roster, members, collector = people(3, 2, sums=2)
    identity = {k: m.identity for k, m in members.items()}

    def restart():
        for k in members:
            members[k] = Member.from_json(json.loads(json.dumps(members[k].to_json())), identity[k])

    restart()
    adverts = collector.advertised({k: m.advertise() for k, m in members.items()})
    restart()
    letters = collector.shared({k: m.share(adverts) for k, m in members.items()})
    restart()
    for k, mine in letters.items():
        members[k].receive(mine)
    restart()
    values = vectors(members)
    total = SecureSum(collector, 0, LENGTH)
    for k in members:
        total.add(k, members[k].mask(0, values[k]))
    restart()
    with pytest.raises(Broken, match="masked before"):
        members[10].mask(0, values[10])
    signatures = {k: m.confirm(0, total.survivors) for k, m in members.items()}
    restart()
    shares = {k: m.reveal(0, signatures) for k, m in members.items()}
    restart()
    with pytest.raises(Broken, match="before"):
        members[10].reveal(0, signatures)
    np.testing.assert_array_equal(total.open(shares), sum(values.values()))


def test_rosters_that_cannot_be_safe_are_refused():
    for members, threshold in (((1,), 1), ((1, 1, 2), 2), ((1, 2, 3, 4), 2), ((1, 2), 3), ((-1, 2), 2)):
        with pytest.raises(BadInput):
            Roster("s", members, threshold)
    with pytest.raises(BadInput):
        Roster("", (1, 2), 2)
    with pytest.raises(BadInput):
        Member(Roster("s", (1, 2), 2), 3)


def test_rosters_that_differ_in_anything_have_different_digests():
    base = Roster("s", (1, 2, 3), 2, 1)
    others = [
        Roster("t", (1, 2, 3), 2, 1),
        Roster("s", (1, 2, 4), 2, 1),
        Roster("s", (1, 2, 3), 3, 1),
        Roster("s", (1, 2, 3), 2, 2),
    ]
    assert len({base.digest, *(o.digest for o in others)}) == 5
    assert Roster.from_json(base.to_json()) == base


def test_adverts_travel_as_plain_data():
    advert = Member(Roster("s", (1, 2), 2, 3), 1).advertise()
    assert Advert.from_json(json.loads(json.dumps(advert.to_json()))) == advert
    with pytest.raises(Broken):
        Advert.from_json({"member": 1, "letters": "zz"})
