"""A reader of `ledger.jsonl` of its own. It shares no code with the ledger that wrote the file: independence is the point.

The format, in full. Every line is one JSON object. Its first field is `seq`, its number from 0; its last two fields are
`prev`, the hash of the line before (32 zeros for the first), and `hash`, the BLAKE2b hash (128 bits, in hex) of the bytes
of the line before `,"hash":`. Line 0 has kind `header` and says the format, the plan's digest, `about` (unit, relation,
observer, exposures), the filter, and the clients' budgets if each client has one. Every other line has one of these kinds:

    grant   a release that was granted: round (0: a statistic before round 1), step, attempt, event; perhaps clients and costs
    torn    stands for a line that a crash cut short; it counts as a grant if it holds an event
    reuse   a standing grant that serves again, to the same bits
    lost    a granted round that was given up; what it was granted stays spent
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from sordino.plain import Json
from sordino.verify.verdict import Broken

FORMAT = "sordino-ledger-1"
START = "0" * 32
_TAIL = len(',"hash":"') + 32 + len('"}')
Row = Json


@dataclass(frozen=True)
class Chain:
    """A ledger whose every line follows from the line before."""

    header: Row
    grants: tuple[Row, ...]
    lost: frozenset[int]
    hashes: tuple[str, ...]

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self.hashes[-1]

    @property
    def about(self) -> Row:
        """What the first line says of the guarantee."""
        return self.header["about"]

    @property
    def rounds(self) -> frozenset[int]:
        """The rounds that were granted; the prelude is none of them."""
        return frozenset(grant["round"] for grant in self.grants if grant["round"])

    @property
    def prelude(self) -> tuple[Row, ...]:
        """What was granted before round 1: statistics, the steps of round 0."""
        return tuple(grant for grant in self.grants if not grant["round"])


def read(path: Path) -> Chain:
    """The ledger at `path`, or `Broken` with the line that does not hold."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise Broken(
            f"{path.name} is missing: a model without its ledger proves nothing; bring back the file of this run."
        ) from None
    except OSError as error:
        raise Broken(f"{path.name} cannot be read ({error.strerror}).") from None
    lines = text.split(b"\n")
    if lines.pop():
        raise Broken(f"line {len(lines) + 1} of {path.name} is cut short: the run was interrupted and not resumed.")
    if not lines:
        raise Broken(f"{path.name} is empty.")
    rows, hashes = [], [START]
    for number, line in enumerate(lines):
        rows.append(_row(path.name, number, line, hashes[-1]))
        hashes.append(rows[-1]["hash"])
    header = _header(path.name, rows[0])
    grants, lost = _sorted(path.name, rows)
    return Chain(header, grants, lost, tuple(hashes[1:]))


def _row(file: str, number: int, line: bytes, before: str) -> Row:
    where = f"line {number + 1} of {file}"
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise Broken(f"{where} is not JSON: the line was changed.") from None
    if not isinstance(row, dict) or [*row][-2:] != ["prev", "hash"] or not line[-_TAIL:].startswith(b',"hash":"'):
        raise Broken(f"{where} does not end with the hashes that chain it: the line was changed.")
    if row["hash"] != hashlib.blake2b(line[:-_TAIL], digest_size=16).hexdigest():
        raise Broken(f"{where} does not have the hash of its content: the line was changed.")
    if row["prev"] != before or row.get("seq") != number or isinstance(row.get("seq"), bool):
        raise Broken(f"{where} does not follow the line before it: a line was deleted, added or moved.")
    return row


def _header(file: str, row: Row) -> Row:
    if row.get("kind") != "header" or row.get("format") != FORMAT:
        raise Broken(f"{file} does not begin with a header of the format {FORMAT}.")
    if not isinstance(row.get("plan"), str) or not isinstance(row.get("about"), dict):
        raise Broken(f"the header of {file} does not say which plan it is for, or for which unit.")
    return row


def _sorted(file: str, rows: list[Row]) -> tuple[tuple[Row, ...], frozenset[int]]:
    """Grants in order, and rounds that were given up. A grant is made once; only a granted round is used again or lost."""
    grants: list[Row] = []
    attempts: dict[tuple[int, int], int] = {}
    lost: set[int] = set()
    for number, row in enumerate(rows[1:], start=2):
        where, kind = f"line {number} of {file}", row.get("kind")
        if kind == "torn" and "event" not in row:
            continue
        at = (row.get("round"), row.get("step", 0))
        if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in at):
            raise Broken(f"{where} names no round.")
        round_, step = int(row["round"]), int(row.get("step", 0))
        if kind in ("grant", "torn"):
            if row.get("attempt") != attempts.get((round_, step), 0) + 1:
                raise Broken(f"{where} grants round {round_} again without counting the attempts.")
            attempts[round_, step] = row["attempt"]
            grants.append(row)
        elif kind == "reuse" and (round_, step) in attempts:
            continue
        elif kind == "lost" and any(known == round_ for known, _ in attempts):
            lost.add(round_)
        else:
            raise Broken(f"{where} is of kind {kind!r} for round {round_}, which does not fit the lines before it.")
    return tuple(grants), frozenset(lost)
