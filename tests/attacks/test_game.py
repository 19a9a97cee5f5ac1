"""A game hands out what an attack declares, and never the answer."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.attacks.game import Game, Reach, on_trial
from sordino.attacks.table import ATTACKS, TABLE, entries
from sordino.attacks.target import spread
from sordino.errors import BadInput, NotPrivate

ASKS = {
    Reach.QUERIES: [lambda g: g.outputs(), lambda g: g.population_outputs()],
    Reach.KNOWN: [lambda g: g.own, lambda g: g.own_members],
    Reach.ROUNDS: [lambda g: g.watch(2)],
    Reach.SHADOWS: [lambda g: g.references(2), lambda g: g.shadows(1)],
}


@pytest.mark.parametrize("reach", ASKS)
def test_what_is_not_declared_is_refused(reach, target):
    for ask in ASKS[reach]:
        with pytest.raises(NotPrivate, match=f"reaches {reach}"):
            ask(Game(target, frozenset(Reach) - {reach}))


def test_views_need_their_own_reach(target):
    for missing, asked in (
        (Reach.WEIGHTS, {"deep": True}),
        (Reach.UPDATES, {"server": True}),
        (Reach.TAMPER, {"active": 1.0}),
    ):
        with pytest.raises(NotPrivate, match=f"reaches {missing}"):
            Game(target, frozenset(Reach) - {missing}).watch(2, **asked)


def test_membership_is_given_for_known_records_only(target):
    game = Game(target, frozenset(Reach))
    assert len(game.own_members) == len(game.own) and not set(game.own) & set(game.judged)
    assert game.own_members.mean() == 0.5 and not hasattr(game, "member") and not hasattr(game, "cast")


@pytest.mark.parametrize("name", [name for name, one in ATTACKS.items() if one.kind == "membership"])
def test_every_attack_declares_what_its_view_implies(name):
    entry = ATTACKS[name]
    reach = entry.build().reach
    assert (Reach.UPDATES in reach) == (entry.view == "server")
    assert (Reach.TAMPER in reach) == entry.active
    assert (Reach.SHADOWS in reach) == bool(entry.models)
    assert entry.kind == "membership" and entry.paper and entry.knows


def test_names():
    assert [e.name for e in entries("rf, rmia,rf")] == ["rf", "rmia"]
    assert entries("all") == list(TABLE)
    with pytest.raises(BadInput, match="'nope' is not known; choose among rf,"):
        entries("rf,nope")
    with pytest.raises(BadInput, match="no attack was named"):
        entries(" ,")


def test_spread_takes_the_last_and_is_even():
    assert spread(range(1, 51), 5) == [10, 20, 30, 40, 50]
    assert spread([3, 7], 5) == [3, 7] and spread(range(1, 8), 3)[-1] == 7
    assert len(set(spread(range(100), 20))) == 20


def test_a_single_pair_of_models_is_no_trial():
    pair = np.array([[True, False, True], [False, True, False]])
    assert on_trial(pair) is None
    four = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]], bool)
    assert on_trial(four).tolist() == [0, 1, 2, 3]
