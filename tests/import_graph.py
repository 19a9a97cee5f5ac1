"""The rooms of the house and who imports whom, read from the source: python tests/import_graph.py

Imports inside functions count too; imports for type checkers alone do not. A room is a package or module directly under
`sordino`. `LAYERS` lists them from the top to the bottom: a room may import rooms of its own layer's row only if no cycle
comes of it, and of the layers below.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sordino"
LAYERS = (
    ("__main__", "cli"),
    ("attacks", "deployment"),
    ("training",),
    ("audit", "verify"),
    ("report", "callbacks", "rehearsal", "inference"),
    ("engines",),
    ("planning",),
    ("assembly",),
    ("recipes",),
    ("plan",),
    ("plan_checks",),
    ("methods",),
    ("method_spec",),
    ("schemes",),
    ("preparation",),
    ("clients", "secagg", "models", "defences", "features", "record"),
    ("federation", "evaluation", "noisy_figures", "noisy_spread"),
    ("rules", "gradients", "data"),
    ("privacy", "native"),
    ("files", "machine", "own_code", "presets", "plain"),
    ("errors", "__init__"),
)


def edges() -> dict[tuple[str, str], list[str]]:
    """(room, imported room) -> the places where that happens."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        here = _room(file)
        for line, module in _imports(ast.parse(file.read_text()), file):
            there = module.split(".")[1] if "." in module else "__init__"
            if there != here:
                found.setdefault((here, there), []).append(f"{file.relative_to(SOURCE)}:{line}")
    return found


def _room(file: Path) -> str:
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


def _imports(tree: ast.AST, file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sordino":
            if node.module == "sordino":
                yield from ((node.lineno, f"sordino.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "sordino")
        yield from _imports(node, file)


def wrong(found: dict[tuple[str, str], list[str]]) -> list[str]:
    """Imports that point upwards, and cycles within a layer."""
    depth = {room: i for i, layer in enumerate(LAYERS) for room in layer}
    said = []
    for (here, there), places in sorted(found.items()):
        if depth[there] < depth[here]:
            said.append(f"{here} imports {there}, which stands above it: {', '.join(places[:3])}")
        elif depth[there] == depth[here] and (there, here) in found:
            said.append(f"{here} and {there} import each other: {', '.join(places[:3])}")
    return said


def main(arguments: list[str]) -> int:
    found = edges()
    problems = wrong(found)
    for line in problems:
        print(line)
    if "--list" in arguments:
        for (here, there), places in sorted(found.items()):
            print(f"{here:12} -> {there:12} {len(places)}")
    print(f"{len(found)} edges between rooms, {len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
