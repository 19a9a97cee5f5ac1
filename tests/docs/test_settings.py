"""The page of settings lists what a plan has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from sordino.plan import Plan

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_every_setting_is_listed_with_its_default():
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE))
    assert list(listed) == [f.name for f in dataclasses.fields(Plan)]
    for field in dataclasses.fields(Plan):
        simple = field.default is not dataclasses.MISSING and field.default is not None
        said = f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`" if simple else ""
        assert listed[field.name] == said, field.name
