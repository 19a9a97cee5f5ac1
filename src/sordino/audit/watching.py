"""What an audit keeps of a run: how much each released value looks like each canary.

Released values only. For every canary the log likelihood ratio of "it contributes" against "it does not" is added up
over the rounds, as an observer of all of them would have it; and the whitened releases are added up, coordinate by
coordinate, so that their cosine with a direction that was not used has its exact distribution.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from sordino.audit.canaries import Canaries
from sordino.errors import BadInput
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.privacy.bounds import Bound, Coordinates, Grouped

FILE = "canaries.json"


class Watch:
    """The sums of one run so far."""

    def __init__(self, canaries: Canaries, rate: float, opposite: bool, folder: Path) -> None:
        """`opposite`: a canary that does not contribute gives its opposite instead of nothing (replace-one)."""
        self.canaries, self.rate, self.folder, self.opposite = canaries, rate, folder, opposite
        self.ratio = np.zeros(canaries.count)
        self.matched = np.zeros(canaries.dimension)
        self.releases = 0
        self._saved: int | None = None  # the round that was kept last
        self.even = True  # every direction was scaled as a whole

    def note(
        self, t: int, value: np.ndarray, bound: Bound, std: float | np.ndarray, visible: np.ndarray | None = None
    ) -> None:
        """A noisy sum in the space where it was clipped, and its noise. `visible`: who is known to have taken part."""
        shifts, count = self.canaries.shifts(bound, t), self.canaries.sums
        self.even &= not isinstance(bound, Grouped)
        if bound.norm_kind == "l1":
            scale = np.asarray(std) / np.sqrt(2)
            there, opposite = (count((np.abs(value) - np.abs(value - s)) / scale) for s in (shifts, -shifts))
        else:
            white, shape = value / std, shifts / std
            along, power = count(white * shape), count(shape**2)
            there, opposite = along - power / 2, -along - power / 2
            weight = self.canaries.signs(t) * np.sqrt(power) * (1 if visible is None else visible)
            self.matched += white * np.append(weight, 0.0)[self.canaries.owner]
        ratio = _mixed(there, self.rate) - (_mixed(opposite, self.rate) if self.opposite else 0.0)
        self.ratio += ratio if visible is None else np.where(visible, ratio, 0.0)
        self.releases += 1

    def cosines(self, vector: np.ndarray) -> np.ndarray:
        """Of each canary's direction with `vector` on its own coordinates."""
        lengths = np.sqrt(self.canaries.sums(vector**2))
        along = self.canaries.sums(vector * self.canaries.direction)
        return np.divide(along, lengths, out=np.zeros(len(along)), where=lengths > 0)

    # ---- files -------------------------------------------------------------------------------------------------------

    def save(self, t: int) -> None:
        """Before the checkpoint of this round: after a crash, the newest checkpoint always finds its match."""
        out = io.BytesIO()
        np.savez(out, ratio=self.ratio, matched=self.matched, releases=np.array(self.releases))
        write_atomically(self._at(t), out.getvalue(), private=True, durable=True)
        if self._saved is not None:  # what lies before the last checkpoint can go
            self.tidy(t, self._saved)
        self._saved = t

    def tidy(self, *rounds: int) -> None:
        """Keep what belongs to the checkpoints of these rounds."""
        keep = {self._at(t) for t in rounds}
        for old in self.folder.glob("checkpoint/canaries-*.npz"):
            if old not in keep:
                old.unlink()

    def load(self, t: int) -> None:
        """Go on with what was noted up to this round."""
        try:
            with np.load(self._at(t), allow_pickle=False) as kept:
                self.ratio, self.matched = kept["ratio"], kept["matched"]
                self.releases = int(kept["releases"])
        except (OSError, KeyError, ValueError) as error:
            raise BadInput(f"what was kept of the canaries cannot be read ({error}); start a new run.") from None

    def _at(self, t: int) -> Path:
        return self.folder / "checkpoint" / f"canaries-{t}.npz"


def write(folder: Path, content: dict[str, object]) -> None:
    """The canaries' secrets and scores, for the owner of the folder only."""
    write_atomically(folder / FILE, (json.dumps(content) + "\n").encode(), private=True, durable=True)


def read(folder: Path) -> Json:
    """What a run noted of its canaries, or a refusal if it had none."""
    try:
        return json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        raise BadInput(
            f"{folder} holds no canaries; train with --canaries N (1000 can show an epsilon of 5 or so) and audit that run."
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder / FILE} cannot be read ({error}); restore it, or train again.") from None


def in_sum_space(mean: np.ndarray, bound: Bound) -> np.ndarray:
    """Undo what `bound.decode` did to a released mean."""
    return (mean - bound.mean) / bound.scale if isinstance(bound, Coordinates) else mean


def _mixed(ratio: np.ndarray, rate: float) -> np.ndarray:
    """The log likelihood ratio when the canary takes part with this probability only."""
    return ratio if rate == 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
