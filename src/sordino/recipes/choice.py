"""A setting that a recipe chose, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One line of what `sordino train` prints before it starts."""

    name: str
    value: object
    reason: str

    def __str__(self) -> str:
        value = self.value.get("kind", "") if isinstance(self.value, dict) else self.value  # plan.toml has all of it
        return f"{self.name.replace('_', '-')} {value}: {self.reason}"
