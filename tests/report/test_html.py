"""The builder of markup."""

from __future__ import annotations

import pytest

from sordino.report.html import Safe, join, sheet, tag, text


def test_strings_are_escaped_and_markup_is_not_escaped_twice():
    assert tag("p", "<i>", tag("b", "&"), title='"') == '<p title="&quot;">&lt;i&gt;<b>&amp;</b></p>'
    assert isinstance(join("a", None, 1), Safe) and join("<", None, 1) == "&lt;1"


def test_markup_loses_its_standing_when_it_is_changed():
    """A string made from markup is a plain string again, and escaped."""
    assert text(tag("b", "x") + "<i>") == "&lt;b&gt;x&lt;/b&gt;&lt;i&gt;"
    assert text(f"{tag('b')}") == "&lt;b&gt;&lt;/b&gt;"


def test_invisible_characters_are_shown():
    assert text("a\u202eb\x00c\x1b") == "a\ufffdb\ufffdc\ufffd" and text("é\n\t中") == "é\n\t中"


@pytest.mark.parametrize("name", ["onclick", "style", "href", "src", "a b", ""])
def test_dangerous_attributes_have_no_place(name):
    with pytest.raises(ValueError, match="no place"):
        tag("p", **{name: "x"})


def test_sheet_cannot_be_left():
    with pytest.raises(ValueError):
        sheet("a{}</style>")
