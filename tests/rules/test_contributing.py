"""The example of how to add a method works as it is printed."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from stage import PLAN, play, replace

from sordino import methods
from sordino.errors import BadInput

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def block(name):
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None, f"CONTRIBUTING.md has lost its example {name!r}"
    return found.group(1)


@pytest.fixture
def line(monkeypatch):
    module = types.ModuleType("sordino.rules.doubling")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look their names up
    exec(compile(block("the rule"), "doubling.py", "exec"), module.__dict__)
    return eval(block("the line"), {"Method": methods.Method, "doubling": module})


def build(line, **changes):
    return line.build(methods.RuleContext(replace(PLAN, **changes), (3, 2), 100))


def test_one_file_and_one_line_make_a_method(line):
    assert isinstance(line, methods.Method) and line.name == "doubling"
    assert line.private_as_published and line.options == {"few": 0.1, "share": 0.05}
    assert build(line, options={"few": 0.2}).few == 0.2
    with pytest.raises(BadInput, match="it has few, share"):
        build(line, options={"fewer": 0.2})
    assert len(block("the line").strip().splitlines()) == 1


@pytest.mark.parametrize("off", [1e-3, 1e3])
def test_the_example_does_what_it_says(line, off):
    rule = build(line, bound=off)
    json.dumps(rule.init())
    bounds = play(rule, lambda source, t: np.exp(0.5 * source.standard_normal(100)), 30)
    assert 0.4 < bounds[-1] < 2.5


def test_every_link_of_the_page_is_there():
    for path in re.findall(r"`((?:src|tests)/[\w/.]+)`", PAGE.read_text()):
        assert "doubling" in path or (PAGE.parent / path).exists(), path
