"""What lines on inverted messages may be quoted for: a defence is tested only where the attack succeeds without it."""

from __future__ import annotations

from collections.abc import Sequence

from sordino.attacks.inversion import metrics
from sordino.attacks.inversion.message import OPEN
from sordino.plain import Json

NEAR = 0.5  # SSIM from which on a picture counts as reconstructed


def verdict(rows: Sequence[Json]) -> str:
    """What the table as a whole may be quoted for."""
    said = [row for row in rows if row.get("informative") is not None]
    drawn = [row for row in rows if row["attack"] != "ked-mi"]
    if rows and not drawn:
        return "KED-MI draws classes, so this table carries no information about single records."
    if drawn and all(row.get("view") == OPEN for row in drawn):
        return "Nothing protects the messages of this run, so the table tells what they give away and nothing about a defence."
    if not said:
        return "No undefended control was attacked, so a low SSIM carries no information about a defence."
    failed = sorted({f"{row['attack']} ({row['model']} model)" for row in said if not row["informative"]})
    if not any(row["informative"] for row in said):
        return "The undefended control resists these attacks too (SSIM below 0.5), so this table carries no information about the defence."
    if failed:
        return f"Without the defence {', '.join(failed)} failed (SSIM below 0.5): those lines carry no information about it."
    return "Every attack succeeds without the defence, so the table tells about it."


def notes(row: Json) -> list[str]:
    """What has to be known about one line."""
    said = []
    if row["informative"] is False:
        said.append(
            "The undefended control failed (SSIM below 0.5): this line carries no information about the defence."
        )
    if row["control_ssim"] is None and row["ssim"] < NEAR:
        known = "though nothing protects the message" if row["view"] == OPEN else "and nothing is known about a control"
        said.append(f"The attack failed here, {known}.")
    if row["window"] != metrics.WINDOW:
        said.append(f"SSIM has a window of {row['window']} pixels: the images are smaller than {metrics.WINDOW}.")
    return said
