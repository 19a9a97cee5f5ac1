"""How large and how plain the house is, counted from the source: python tests/house_counts.py [SOURCE] [--against FOLDER]

Every count is one that should stay small. `test_house_counts.py` keeps a ceiling for each.
A method without a docstring is not counted if it overrides a method that has one: the base says what it is for. Bases are found by
name, and a protocol of two methods or more is a base of every class that has all of them.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sordino"
LONG = 300
WAYS = {"pooled", "local", "sealed", "private", "published", "masked_local"}  # attributes of a plan
ELSEWHERE = {
    "Module": {"forward"},
    "Function": {"forward", "backward"},
    "Thread": {"run"},
}  # PyTorch and Python explain these
Functions = ast.FunctionDef | ast.AsyncFunctionDef
Branches = ast.If | ast.While | ast.IfExp


@dataclass(frozen=True)
class Module:
    """One source file, as text and as a tree."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def lines_with(self, *words: str) -> list[str]:
        """The lines of code that use one of these names. Comments and strings do not count."""
        return self._at({node.lineno for node in ast.walk(self.tree) if _name(node) in words})

    def branches_on_ways(self) -> list[str]:
        """The lines that ask a plan for its way of working and branch on the answer."""
        tests = [node.test for node in ast.walk(self.tree) if isinstance(node, Branches)]
        return self._at({node.lineno for test in tests for node in ast.walk(test) if _asks_way(node)})

    def shadows_round(self) -> list[str]:
        """The functions and lambdas with a parameter or a variable called `round`."""
        functions = [node for node in ast.walk(self.tree) if isinstance(node, Functions | ast.Lambda)]
        return self._at({(node.lineno, node.col_offset) for node in functions if "round" in _own_names(node)})

    def _at(self, places: set[int] | set[tuple[int, int]]) -> list[str]:
        return [f"{self.name}:{place if isinstance(place, int) else place[0]}" for place in sorted(places)]


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.name if isinstance(node, ast.alias) else ""


def _asks_way(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "closed_loop"
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
    return node.attr == "closed_loop" or (node.attr in WAYS and owner == "plan")


def _own_names(function: Functions | ast.Lambda) -> set[str]:
    """Parameters and variables of a function; those of the functions inside it are theirs."""
    names = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    open_nodes: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, Functions | ast.Lambda | ast.ClassDef):
            open_nodes.extend(ast.iter_child_nodes(node))
    return names


@dataclass
class Klass:
    """What a class says about its methods."""

    bases: set[str]
    methods: dict[str, int]  # name -> line
    documented: set[str]


class Docstrings:
    """The public names of a tree, and those that nobody explains."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.classes = {name: [Klass(set(), {}, methods)] for name, methods in ELSEWHERE.items()}
        for module in modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(_klass(node))
        every = [klass for found in self.classes.values() for klass in found]
        self.protocols = [klass for klass in every if "Protocol" in klass.bases and len(klass.methods) > 1]

    def public(self) -> list[tuple[str, bool]]:
        """(place, explained) for each public function, class and method."""
        return [(f"{module.name}:{line}", said) for module in self.modules for line, said in self._public(module.tree)]

    def _public(self, tree: ast.Module) -> Iterator[tuple[int, bool]]:
        for node in tree.body:
            if not isinstance(node, Functions | ast.ClassDef) or node.name.startswith("_"):
                continue
            yield node.lineno, bool(ast.get_docstring(node))
            if isinstance(node, ast.ClassDef):
                klass = _klass(node)
                explained = klass.documented | self._inherited(klass)
                yield from ((line, name in explained) for name, line in klass.methods.items())

    def _inherited(self, klass: Klass) -> set[str]:
        """The methods that a base explains, however far above it stands."""
        documented: set[str] = set()
        seen: set[str] = set()
        names = list(klass.bases)
        while names:
            name = names.pop()
            if name not in seen:
                seen.add(name)
                for base in self.classes.get(name, ()):
                    documented |= base.documented
                    names.extend(base.bases)
        return documented.union(*(p.documented for p in self.protocols if p.methods.keys() <= klass.methods.keys()))


def _klass(node: ast.ClassDef) -> Klass:
    methods = [item for item in node.body if isinstance(item, Functions) and not item.name.startswith("_")]
    bases = {ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases}
    # A name may have several definitions, overloads or a setter: one of them explains it.
    lines = {item.name: item.lineno for item in methods}
    return Klass(bases, lines, {item.name for item in methods if ast.get_docstring(item)})


@dataclass(frozen=True)
class Count:
    """One row of the table: a number, and the places that make it up."""

    label: str
    value: float
    places: list[str] = field(default_factory=list)
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value:.1f} %" if self.percent else f"{self.value:,}"


def counts(source: Path = SOURCE) -> dict[str, Count]:
    """Every count of a source tree, by its short name."""
    modules = [Module(str(f.relative_to(source)), f.read_text()) for f in sorted(source.rglob("*.py"))]
    public = Docstrings(modules).public()
    bare = [place for place, said in public if not said]

    def each(of: Callable[[Module], list[str]]) -> list[str]:
        return [place for module in modules for place in of(module)]

    def listed(label: str, places: list[str]) -> Count:
        return Count(label, len(places), places)

    return {
        "modules": Count("modules", len(modules)),
        "lines": Count("lines", sum(m.lines for m in modules)),
        "long": listed(f"modules over {LONG} lines", [f"{m.name}:{m.lines}" for m in modules if m.lines > LONG]),
        "any": listed("lines with `Any`", each(lambda m: m.lines_with("Any"))),
        "getattr": listed("lines with `getattr` or `hasattr`", each(lambda m: m.lines_with("getattr", "hasattr"))),
        "bare": listed("public names without a docstring", bare),
        "bare_percent": Count("the same, of all public names", 100 * len(bare) / max(1, len(public)), percent=True),
        "round": listed("functions that shadow `round`", each(Module.shadows_round)),
        "branches": listed("lines that branch on the way of working", each(Module.branches_on_ways)),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", nargs="?", type=Path, default=SOURCE)
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="another source tree, printed as the first column"
    )
    parser.add_argument("--list", metavar="COUNT", help="print the places of one count: long, any, getattr, bare, ...")
    given = parser.parse_args(arguments)
    now = counts(given.source)
    if given.list:
        print("\n".join(now[given.list].places))
        return 0
    columns = [now] if given.against is None else [counts(given.against), now]
    print("| count |" + ("" if given.against is None else " before |") + " now |")
    print("|---|" + "---:|" * len(columns))
    for name, count in now.items():
        print(f"| {count.label} | " + " | ".join(str(column[name]) for column in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
