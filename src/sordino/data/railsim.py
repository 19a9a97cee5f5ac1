"""`rail-simulated`: what an accelerometer on an inspection vehicle would record over three kinds of rail defect.

The recordings of AdaCT-DPFL are not public; this stands in for them, and is called simulated wherever it appears. A
vehicle at speed v (m/s) over a section of track hears, besides broad rolling noise and the sleepers
(every 0.6 m, so v / 0.6 Hz) and a resonance of wheel on rail:

- corrugation: waves of a pitch of 30 to 80 mm worn into the rail, a tone at v / pitch with its first harmonic, whose
  depth swells and fades along the track;
- fish-scale cracks: dense small cracks, hence many faint bursts per metre that ring for under a millisecond at 1.2
  to 1.9 kHz;
- spalling: few pieces broken out, hence one to three heavy blows per window that ring for some milliseconds at
  150 to 900 Hz.

Sections differ in speed, pitch, resonance, sensor gain and noise, in how many windows they have and which defects
prevail, as the paper says its sections do. Depths vary from window to window, so that faint defects drown in the noise,
and some windows carry a trace of another defect.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.data.dataset import Dataset
from sordino.data.rail import DEFECTS, Pipeline, assemble
from sordino.errors import positive, whole
from sordino.privacy.randomness import stream

ABOUT = "simulated rail vibration of three defects in 10 track sections, 512 samples"


@dataclass(frozen=True)
class Track:
    """What is simulated."""

    sections: int = 10
    windows: int = 400
    """On average per section."""
    rate: float = 4096.0
    severity: float = 1.0
    """Depth of the defects against the noise; smaller is harder."""
    seed: int = 0

    def __post_init__(self) -> None:
        whole(sections=self.sections)
        whole(least=10, windows=self.windows)
        positive(rate=self.rate, severity=self.severity)


@dataclass(frozen=True)
class Section:
    """The conditions of one section."""

    speed: float
    pitch: float
    resonance: float
    gain: float
    noise: float
    windows: int
    mix: np.ndarray


def simulated(track: Track | None = None, pipeline: Pipeline | None = None) -> Dataset:
    """All sections, through the same pipeline as real recordings."""
    track = track or Track()
    pipeline = pipeline or Pipeline(seed=track.seed)
    sections = {f"section-{k:02d}": record(track, k, pipeline.window) for k in range(track.sections)}
    return assemble("rail-simulated", sections, pipeline, ABOUT, simulated=True, rate=track.rate, seed=track.seed)


def conditions(track: Track, k: int) -> Section:
    """Drawn once for a section."""
    draw = stream(track.seed, 0, k, "rail-section")
    return Section(
        speed=draw.uniform(12, 35),
        pitch=draw.uniform(0.03, 0.08),
        resonance=draw.uniform(60, 110),
        gain=float(np.exp(draw.normal(0, 0.4))),
        noise=float(np.exp(draw.normal(0, 0.25))),
        windows=max(10, round(track.windows * float(np.exp(draw.normal(-0.125, 0.5))))),
        mix=draw.dirichlet(np.full(len(DEFECTS), 3.0)),
    )


def record(track: Track, k: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw windows (n, 1, samples) of section k and the kind of defect in each."""
    here, draw = conditions(track, k), stream(track.seed, 0, k, "rail-signal")
    time = np.arange(samples) / track.rate
    labels = draw.choice(len(DEFECTS), size=here.windows, p=here.mix).astype(np.int64)
    signals = np.stack([_window(here, int(label), time, track.severity, draw) for label in labels])
    return signals[:, None], labels


def _window(here: Section, label: int, time: np.ndarray, severity: float, draw: np.random.Generator) -> np.ndarray:
    signal = _rolling(here, time, draw)
    signal += severity * float(np.exp(draw.normal(0, 0.45))) * _defect(label, here, time, draw)
    if draw.random() < 0.25:
        other = (label + int(draw.integers(1, len(DEFECTS)))) % len(DEFECTS)
        signal += 0.35 * severity * float(np.exp(draw.normal(0, 0.45))) * _defect(other, here, time, draw)
    if draw.random() < 0.05:  # a loose contact: one sample that is not vibration at all
        signal[draw.integers(len(signal))] += 40 * draw.choice([-1.0, 1.0])
    return here.gain * signal


def _defect(label: int, here: Section, time: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return (_corrugation, _cracks, _spalls)[label](here, time, draw)


def _rolling(here: Section, time: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Noise that falls with frequency, the sleepers, and the resonance of wheel on rail."""
    white = draw.standard_normal(len(time))
    rough = np.cumsum(draw.standard_normal(len(time)))
    rough = (rough - rough.mean()) / (rough.std() + 1e-12)
    hum = sum(
        0.5 * np.cos(2 * np.pi * frequency * time + draw.uniform(0, 2 * np.pi))
        for frequency in (here.speed / 0.6, here.resonance)
    )
    return here.noise * (white + 0.6 * rough + hum)


def _corrugation(here: Section, time: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A tone at speed / pitch; stiffer excitation at higher speed, depth swelling along the track."""
    frequency = here.speed / (here.pitch * float(np.exp(draw.normal(0, 0.06))))
    swell = 1 + 0.6 * np.cos(2 * np.pi * draw.uniform(2, 8) * time + draw.uniform(0, 2 * np.pi))
    tone = np.cos(2 * np.pi * frequency * time + draw.uniform(0, 2 * np.pi))
    tone += 0.3 * np.cos(4 * np.pi * frequency * time + draw.uniform(0, 2 * np.pi))
    return 1.15 * np.sqrt(here.speed / 20) * swell * tone


def _cracks(here: Section, time: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Some fifteen faint bursts per metre."""
    metres = here.speed * time[-1]
    return _ringing(time, draw, draw.poisson(15 * metres) + 5, (1200, 1900), (0.0004, 0.0009), 3.6)


def _spalls(here: Section, time: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """One to three blows, the heavier the faster."""
    return np.sqrt(here.speed / 20) * _ringing(time, draw, int(draw.integers(1, 4)), (150, 900), (0.003, 0.008), 7.2)


def _ringing(
    time: np.ndarray,
    draw: np.random.Generator,
    count: int,
    frequencies: tuple[float, float],
    decays: tuple[float, float],
    height: float,
) -> np.ndarray:
    """`count` decaying tones that begin at random moments."""
    start = draw.uniform(0, time[-1], size=(count, 1))
    frequency = draw.uniform(*frequencies, size=(count, 1))
    decay = draw.uniform(*decays, size=(count, 1))
    heights = height * np.exp(draw.normal(0, 0.3, size=(count, 1))) * draw.choice([-1.0, 1.0], size=(count, 1))
    since = time[None] - start
    rings = heights * np.exp(-np.maximum(since, 0) / decay) * np.sin(2 * np.pi * frequency * since)
    return np.where(since >= 0, rings, 0.0).sum(axis=0)
