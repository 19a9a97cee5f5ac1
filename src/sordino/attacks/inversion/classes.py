"""KED-MI on a run: which images are public, who judges, and the line of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from sordino.attacks.inversion.attack import Say
from sordino.attacks.inversion.gan import Judge
from sordino.attacks.inversion.ked_mi import Answers, KedMI, answers_of
from sordino.attacks.inversion.observed import Victim
from sordino.attacks.inversion.pictures import encoded
from sordino.attacks.inversion.progress import Progress
from sordino.attacks.networks import Lesson, learn
from sordino.errors import BadInput
from sordino.gradients.flat import Flat
from sordino.plain import Json
from sordino.privacy.randomness import SERVER, stream

if TYPE_CHECKING:
    from sordino.attacks.inversion.runs import Inverted
    from sordino.federation.population import Federation

MOST = 6400  # public images that the generator learns from
JUDGED = 2000  # test images that the judge is tried on
JUDGE = Lesson(lr=1e-3, epochs=3, batch=64, held_out=0.1)


def class_row(run: Inverted, attack: KedMI, public: str, pictures: bool, progress: Progress, say: Say) -> Json:
    """The line of KED-MI. Pictures show a private record of each class beside what was drawn for it."""
    victim = Victim.of(run.federation, run.make, run.plan.seed)
    if min(victim.shape[1:]) < 16:
        raise BadInput(
            f"images of shape {victim.shape} are too small for KED-MI's networks; it needs 16 pixels a side."
        )
    images = public_images(run.federation, public)
    module = run.make(run.plan.seed)
    flat = Flat(module)
    flat.load(run.theta)
    judge = trained_judge(run.federation, victim, attack.seed)
    private = np.unique(np.asarray(run.federation.y)).tolist()  # the judge knows no others
    found = attack(victim, answers_of(module), images, judge, progress, say, private)
    progress.forget()
    likely = np.stack([_one_of_class(run.federation, c) for c in found.classes])
    shown = encoded(original=victim.pixels(likely), drawn=victim.pixels(found.images[:, 0])) if pictures else None
    return {
        "kind": "inversion", "attack": attack.name, "model": "trained", "batch": None,
        "top1": found.top1, "top5": found.top5, "top1_by_seed": list(found.by_seed), "chance": found.chance,
        "times_chance": found.top1 / found.chance, "judge_accuracy": judge_accuracy(run.federation, judge), "seconds": round(found.seconds, 3), "pictures": shown,
        "control_ssim": None, "informative": None,
        "notes": ["KED-MI draws classes and not records; it is no measure of differential privacy."],
    }  # fmt: skip


def public_images(federation: Federation, name: str) -> np.ndarray:
    """Images of classes that no client holds: from another data set, or from the test split."""
    if name:
        from sordino.data.sets import load

        data = load(name)
        if data.x.shape[1:] != federation.input_shape:
            raise BadInput(
                f"images of {name} have shape {data.x.shape[1:]} and those of the run {federation.input_shape}; give a set of that shape."
            )
        rows = stream(0, 0, SERVER, "inversion-public").permutation(len(data.x))[:MOST]
        return federation.prepare(np.asarray(data.x[np.sort(rows)]))
    test = federation.raw_test
    held = np.unique(np.asarray(federation.y)) if federation.y is not None else np.zeros(0)
    rows = np.zeros(0, np.int64) if test is None else np.flatnonzero(~np.isin(np.asarray(test[1]), held))
    if test is None or len(rows) < 2 * KedMI.batch:
        raise BadInput(
            "KED-MI learns from public images of classes that no client holds, and this run's test split has too few; "
            "name a data set of the same shape with --public (fashion-mnist for mnist)."
        )
    return federation.prepare(np.asarray(test[0][rows[:MOST]]))


def trained_judge(federation: Federation, victim: Victim, seed: int, lesson: Lesson = JUDGE) -> Answers:
    """The evaluation classifier, trained on the private classes by the owner of the data; the attacker never sees it."""
    if federation.x is None or federation.y is None:
        raise BadInput(f"the data of {federation.name} is made on demand; KED-MI's judge needs data that is held.")
    rng = stream(seed, 0, SERVER, "inversion-judge")
    rows = np.sort(rng.permutation(len(federation.y))[:10_000])
    x, y = federation.prepare(np.asarray(federation.x[rows])), np.asarray(federation.y)[rows].astype(np.int64)
    return answers_of(learn(lambda: Judge(victim.shape, victim.classes), [x], y, F.cross_entropy, lesson, rng))


def judge_accuracy(federation: Federation, judge: Answers) -> float | None:
    """How often the judge is right on test images of the private classes: a judge that errs counts good pictures as bad."""
    test = federation.raw_test
    y = np.zeros(0) if test is None else np.asarray(test[1])
    rows = np.flatnonzero(np.isin(y, np.asarray(federation.y)))[:JUDGED]
    if test is None or not len(rows):
        return None
    with torch.no_grad():
        said = judge(torch.from_numpy(federation.prepare(np.asarray(test[0][rows])))).argmax(-1).numpy()
    return float((said == y[rows]).mean())


def _one_of_class(federation: Federation, c: int) -> np.ndarray:
    assert federation.x is not None and federation.y is not None
    rows = np.flatnonzero(np.asarray(federation.y) == c)[:1]
    return federation.prepare(np.asarray(federation.x[rows]))[0]
