"""Tables on the pages of docs/, put there by the studies that measured them.

A page says where a table goes, and people write what stands around it:

    <!-- table: NAME -->
    what is here is replaced
    <!-- end -->
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def fill(page: str, name: str, table: str) -> None:
    """Put the table into the page; everything else stays as it is."""
    path = DOCS / page
    mark = f"<!-- table: {name} -->"
    pattern = re.compile(re.escape(mark) + r".*?<!-- end -->", re.DOTALL)
    text, found = pattern.subn(lambda _: f"{mark}\n\n{table.strip()}\n\n<!-- end -->", path.read_text())
    if found != 1:
        raise SystemExit(
            f"docs/{page} has {found} places for the table {name}; it needs one ({mark} ... <!-- end -->)."
        )
    path.write_text(text)
