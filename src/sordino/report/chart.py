"""A small line chart as inline SVG: axes, round ticks, a reference line, a title and the value under the pointer.

It is drawn here, in Python, so that the page needs no script. Colours come from the style sheet, so that the chart
follows light and dark mode and print. Screen readers get the title and a description; the numbers are in the table
below the charts. Of a long run each stretch of rounds is drawn as its mean, in a band from its lowest value to its
highest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sordino.report.axis import Axis, linear, logarithmic, rounds, suits_log
from sordino.report.downsample import Bin, Point, thin
from sordino.report.html import Safe, tag
from sordino.report.numbers import plain

WIDTH, HEIGHT = 480, 224
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 14, 28
FEW = 40  # up to so many points are marked with dots, if they are not of every round


@dataclass(frozen=True)
class Reference:
    """A dashed line across the chart."""

    value: float
    label: str


@dataclass(frozen=True)
class Chart:
    """One series over rounds."""

    name: str  # unique on the page
    title: str
    points: tuple[Point, ...]
    show: Callable[[float], str] = plain  # a value, under the pointer and in words
    tick: Callable[[float, int], str] | None = None  # (tick, decimals the axis needs); None: plain
    span: tuple[float, float] | None = None  # a fixed range; None: from the points
    may_log: bool = False
    reference: Reference | None = None

    @property
    def axis(self) -> Axis:
        """Linear axes start at zero unless a range is set, so that a line that hardly moves does not look dramatic."""
        values = [y for _, y in self.points]
        if self.reference is not None:
            values.append(self.reference.value)
        if self.span is not None:
            return linear(*self.span)
        if self.may_log and suits_log(values):
            return logarithmic(min(values), max(values))
        fitted = linear(min(0.0, *values), max(0.0, *values))
        tight = max(values) > 0.98 * fitted.high  # a line along the upper edge would hardly be seen
        return replace(fitted, high=1.06 * fitted.high) if tight else fitted

    @property
    def log(self) -> bool:
        """Whether the vertical axis is logarithmic."""
        return self.axis.log

    def words(self) -> str:
        """The chart in one sentence, for those who do not see it."""
        (first, start), (last, end) = self.points[0], self.points[-1]
        if first == last:
            return f"{self.title}: {self.show(end)} in round {last}."
        low, high = min(self.points, key=_value), max(self.points, key=_value)
        if low[1] == high[1]:
            return f"{self.title}: {self.show(end)} in every round from {first} to {last}."
        return (
            f"{self.title}: {self.show(start)} in round {first}, {self.show(end)} in round {last}; lowest "
            f"{self.show(low[1])} in round {low[0]}, highest {self.show(high[1])} in round {high[0]}."
        )

    def svg(self) -> Safe:
        """The drawing, with a title for screen readers."""
        across, up = rounds(self.points[0][0], self.points[-1][0]), self.axis
        drawn = thin(self.points)
        return tag(
            "svg",
            tag("title", self.title, id=f"{self.name}-title"),
            tag("desc", self.words(), id=f"{self.name}-words"),
            *self._frame(across, up),
            *self._reference(up),
            _band(drawn, across, up),
            tag("polyline", points=" ".join(f"{_x(across, s.middle)},{_y(up, s.mean)}" for s in drawn), class_="line"),
            *self._dots(drawn, across, up),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_labelledby=f"{self.name}-title {self.name}-words",
            class_="chart",
        )

    def _frame(self, across: Axis, up: Axis) -> list[Safe]:
        parts = []
        for value in up.ticks:
            y = _y(up, value)
            label = self.tick(value, up.decimals) if self.tick and not up.log else plain(value)
            parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", label, x=LEFT - 8, y=y, dy="0.35em", class_="tick up"))
        base = HEIGHT - BOTTOM
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="axis"))
        for i, value in enumerate(across.ticks):
            x = _x(across, value)
            parts.append(tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
            parts.append(tag("text", f"{'' if i else 'round '}{int(value):,}", x=x, y=base + 21, class_="tick across"))
        return parts

    def _reference(self, up: Axis) -> list[Safe]:
        if self.reference is None or not up.low <= self.reference.value <= up.high:
            return []
        y = _y(up, self.reference.value)
        above = y > TOP + 16
        return [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="reference"),
            tag("text", self.reference.label, x=LEFT + 6, y=y - 5 if above else y + 15, class_="tick note"),
        ]

    def _dots(self, drawn: list[Bin], across: Axis, up: Axis) -> list[Safe]:
        """A dot per stretch (shown if they are few and far between, or under the pointer), in a strip to point at."""
        sparse = len(drawn) <= FEW and len(drawn) <= self.points[-1][0] - self.points[0][0]
        places = [_x(across, s.middle) for s in drawn]
        edges = [LEFT, *(round((a + b) / 2, 1) for a, b in zip(places, places[1:])), WIDTH - RIGHT]
        parts = []
        for s, x, left, right in zip(drawn, places, edges, edges[1:]):
            shown = sparse or s is drawn[-1]
            strip = tag("rect", x=left, y=TOP, width=round(max(0.1, right - left), 1), height=HEIGHT - TOP - BOTTOM)
            dot = tag("circle", cx=x, cy=_y(up, s.mean), r=3, class_="dot" if shown else "dot faint")
            parts.append(tag("g", tag("title", self._under_pointer(s)), strip, dot, class_="point"))
        return parts

    def _under_pointer(self, s: Bin) -> str:
        where = f"round {s.first:,}" if s.first == s.last else f"rounds {s.first:,} to {s.last:,}"
        low, high = self.show(s.low), self.show(s.high)
        return f"{where}: {low}" if low == high else f"{where}: {low} to {high}, mean {self.show(s.mean)}"


def _band(drawn: list[Bin], across: Axis, up: Axis) -> Safe | None:
    if all(s.low == s.high for s in drawn):
        return None
    outline = [(s.middle, s.high) for s in drawn] + [(s.middle, s.low) for s in reversed(drawn)]
    return tag("polygon", points=" ".join(f"{_x(across, x)},{_y(up, y)}" for x, y in outline), class_="band")


def _value(point: Point) -> float:
    return point[1]


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM), 1)
