"""Plain data: what JSON and TOML files hold, and what leaves a frozen object as keyword settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
"""An object of a JSON file: names to numbers, words, lists and further objects."""

Plain = Mapping[str, Any]
"""The same, to be read only: the settings of a plan by their names."""
