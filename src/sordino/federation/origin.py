"""Where a population came from, in the words of a plan: what a run records is what it was trained on.

Data that has no name and no path (arrays, frames, data made on demand) is written in angle brackets, ``<arrays>``: a plan
that says so can be read and signed, and not be run again without that data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Origin:
    """The settings of a plan that follow from a population."""

    data: str
    partition: str = "natural"
    alpha: float | None = None
    partition_seed: int | None = None
    client_column: str | None = None
    label: str | None = None
    test: str | None = None
    schema: str | None = None
    ignore: str | None = None
    task: str = "classification"
    classes: int | None = None

    def settings(self) -> dict[str, object]:
        """Fields of a plan; what the partition does not use is left out."""
        return {name: value for name, value in asdict(self).items() if name != "alpha" or value is not None}


def given(name: str) -> str:
    """How data or a model that was handed over in Python is written."""
    return name if is_given(name) else f"<{name}>"


def is_given(name: str) -> bool:
    """Whether data came as Python objects, so that no command can find it again."""
    return name.startswith("<") and name.endswith(">")
