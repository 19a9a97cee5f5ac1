"""Makes docs/reference.md from docstrings and signatures: `python docs/reference.py`. A test says when it is out of date."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from pathlib import Path

import sordino

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

The public names of `sordino`, from their docstrings (`python docs/reference.py` makes this page). Every setting of a plan is on the
page [settings](settings.md); the rooms behind these names are on the page [architecture](architecture.md).
"""


def page() -> str:
    names = sorted(name for name in sordino.__all__ if not name.startswith("_"))
    return HEAD + "".join(entry(name, getattr(sordino, name)) for name in names)


def entry(name: str, thing: object) -> str:
    """One name: what it is, how it is called, what it says of itself."""
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        values = ", ".join(f"`{member.value}`" for member in thing)
        return f"\n## {name}\n\n{says(thing)}\n\nOne of {values}.\n"
    text = f"\n## {name}\n\n```python\n{name}{signature(thing)}\n```\n\n{says(thing)}\n"
    if inspect.isclass(thing):
        for label, method in sorted(own_names(thing).items()):
            told = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
            if label.startswith("_") or not callable(told) or not inspect.getdoc(told):
                continue
            text += f"\n### {name}.{label}\n\n```python\n{label}{signature(told)}\n```\n\n{says(told)}\n"
    return text


def own_names(kind: type) -> dict[str, object]:
    """What the class and those of ours that it builds on define."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base is kind or base.__module__.startswith("sordino.federation"):
            found |= vars(base)
    return found


def signature(thing: object) -> str:
    """How it is called; a plan has a page of its own for its settings."""
    if thing is sordino.Plan:
        return "(**settings)"
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return ""
    found = inspect.signature(thing)
    drop = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    text = str(found.replace(parameters=drop))
    if dataclasses.is_dataclass(thing):
        text = re.sub(r"<factory>", "...", text)
    text = re.sub(r"<function [^>]*\.?<lambda>[^>]*>|<function (\w+)[^>]*>", lambda m: m[1] or "...", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)  # members of an enum
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations


def says(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n    >>> ")[0].strip()


if __name__ == "__main__":
    PAGE.write_text(page())
