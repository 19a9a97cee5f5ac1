"""Correlated noise: a client that takes part too often, and noise that is drawn again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
for room in ("schemes", "engines/flower"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))

from hall import Hall  # noqa: E402
from hall import toy as holders_toy  # noqa: E402
from test_holder import Tap, again  # noqa: E402
from test_holder import plan as holders_plan  # noqa: E402
from test_turns import Stop, model, plan, toy  # noqa: E402

from sordino import train  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.errors import BadInput, NotPrivate  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.privacy.bounds import Flat  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.clipped import request_for  # noqa: E402
from sordino.schemes.request import CONTRIBUTE  # noqa: E402


def test_a_client_is_not_let_in_out_of_turn():
    """A server (or a draw of one's own) that calls a client twice within b rounds gets an error and no sum."""
    federation, wanted = toy(), plan()
    terms = settle(wanted, PublicSizes.of(federation))
    theta = np.zeros(12, np.float32)
    work = terms.scheme.work(Site(model(), federation, wanted), theta, None, terms)
    mine = int(terms.scheme.turn(1)[0])
    for t in range(1, 7):
        request, out = request_for(terms, t, CONTRIBUTE, Flat(1.0), None, 0.0), np.zeros(12, np.int64)
        if t in (1, 4):
            work.contribute(request, mine, out)
            assert out.any()
        else:
            with pytest.raises(NotPrivate, match="not the turn"):
                work.contribute(request, mine, out)
            assert not out.any()


@pytest.mark.parametrize("after", [1, 4])
def test_a_secure_run_does_not_go_on_without_the_noise_that_it_must_take_back(after, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(model(), toy(), plan(secure=True), out=tmp_path / "run", callbacks=[Stop(after)])
    with pytest.raises(BadInput, match="cannot resume"):
        train(model(), toy(), plan(secure=True), out=tmp_path / "run", resume=True)


def test_a_secure_run_ends(tmp_path):
    result = train(model(), toy(), plan(secure=True), out=tmp_path / "run")
    assert result.rounds == 10


def test_noise_of_past_rounds_is_not_on_disk(tmp_path):
    """Whoever has w can subtract it: the checkpoint holds the model and nothing of it."""
    from safetensors import safe_open

    train(model(), toy(), plan(), out=tmp_path / "run")
    with safe_open(tmp_path / "run" / "checkpoint" / "state.safetensors", "numpy") as file:
        assert set(file.keys()) == {"theta"}


def test_a_holder_does_not_answer_out_of_turn_whatever_the_server_says(tmp_path):
    hall = Hall(holders_toy(clients=3), tmp_path / "holders")
    taps = {name: Tap(hall, name) for name in hall.names}
    wanted = holders_plan(
        method="dp-bandmf", observer="public", sampling="poisson", cohort=1, rounds=3, options={"bands": 3}
    )
    hall.train(wanted, tmp_path / "run")
    asked = {name: [one for one, _ in tap.of("work")] for name, tap in taps.items()}
    assert all(len(works) == 1 for works in asked.values())  # each in its own round
    for name in hall.names:
        for other in hall.names:
            if other != name:
                reply = again(hall, other, asked[name][0].but(to=other), attempt="greedy")
                assert reply.head["class"] == "Refused" and "turn" in reply.head["said"]
    hall.close()
