"""`shadow-lr-unseen`: nobody is judged by a classifier that learnt from their own class."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from sordino.attacks.membership import shadow_lr
from sordino.attacks.membership.shadow_lr import ShadowLR


def game(classes=5, records=400, seed=0):
    """Two shadow models and a target that know their members: a margin that is larger by 2."""
    rng = np.random.Generator(np.random.PCG64(seed))
    labels, judged = rng.integers(classes, size=records), np.arange(200)
    theirs, members = rng.integers(classes, size=200), np.arange(200) < 100

    def logits(labels, inside):
        out = rng.normal(size=(len(labels), classes))
        out[np.arange(len(labels)), labels] += 2 + 2 * inside
        return out

    inside = rng.random((2, records)) < 0.5
    shadows = SimpleNamespace(inside=inside, logits=np.stack([logits(labels, row) for row in inside]))
    return SimpleNamespace(
        shadows=lambda count: shadows, population_labels=labels, labels=theirs, judged=judged, classes=classes, members=members,
        outputs=lambda: logits(theirs, members), rng=lambda purpose: np.random.Generator(np.random.PCG64(7)),
    )  # fmt: skip


def test_it_finds_members_of_classes_that_its_classifier_never_saw(monkeypatch):
    seen = []
    real = shadow_lr.fit
    monkeypatch.setattr(shadow_lr, "fit", lambda table, inside: seen.append(len(table)) or real(table, inside))
    played = game()
    guess = ShadowLR(shadows=2, unseen=0.2).guess(played)
    counts = np.bincount(np.tile(played.population_labels, 2), minlength=5)
    assert sorted(seen) == sorted(800 - counts)  # each of the five classes left out once
    inside, outside = guess.scores[played.members], guess.scores[~played.members]
    assert (inside[:, None] > outside[None, :]).mean() > 0.7
    assert "classes unseen in turn" in guess.notes[0]
    assert ShadowLR(shadows=2).guess(played).scores.shape == (200,)
