"""Markup that cannot be injected into: every string is escaped unless it was built here.

`tag` is the only maker of markup. It escapes what it is given, so a page assembled from `tag` calls can hold any name,
reason or setting a run folder may contain, and show it as text.
"""

from __future__ import annotations

import base64
import binascii
import html
import re

VOID = frozenset({"meta", "br", "hr", "wbr", "img"})
# Control characters, and the invisible ones that turn the reading direction: a name could pass for another with them.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
PNG = b"\x89PNG\r\n\x1a\n"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


class Safe(str):
    """Markup that `tag`, `join` or `text` made."""

    __slots__ = ()


def text(value: object) -> Safe:
    """Anything as text: escaped, and what is invisible made visible."""
    if isinstance(value, Safe):
        return value
    return Safe(html.escape(_HIDDEN.sub("\ufffd", str(value)), quote=True))


def join(*parts: object) -> Safe:
    """Several pieces after one another; None is left out."""
    return Safe("".join(text(part) for part in parts if part is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Safe:
    """One element. A trailing underscore in an attribute is dropped (`class_`), others become hyphens.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    opening = [name]
    for key, value in attributes.items():
        key = key.removesuffix("_").replace("_", "-")
        if not _NAME.fullmatch(key) or key.startswith("on") or key in ("style", "href", "src"):
            raise ValueError(f"the attribute {key!r} has no place in a report.")
        if value is not None and value is not False:
            opening.append(key if value is True else f'{key}="{text(value)}"')
    start = f"<{' '.join(opening)}>"
    return Safe(start) if name in VOID else Safe(f"{start}{join(*children)}</{name}>")


def picture(data: str, words: str) -> Safe | None:
    """An image of base64 PNG inside the page, the only kind of `src` there is; None if `data` is anything else."""
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not found.startswith(PNG):
        return None
    return Safe(f'<img alt="{text(words)}" src="data:image/png;base64,{base64.b64encode(found).decode()}">')


def sheet(css: str) -> Safe:
    """A style element. The sheet is our own, and must not be able to end it."""
    if "</" in css:
        raise ValueError("a style sheet cannot hold '</'.")
    return Safe(f"<style>{css}</style>")
