"""Code of the user's own, named ``package.module:object`` on the command line and in a plan.

The module is imported, which runs it. A data holder therefore imports only what its own policy lists
(`engines.flower.policy`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path

from sordino.errors import BadInput, in_short


def is_reference(name: str) -> bool:
    """Whether a name is `package.module:object`."""
    return ":" in name


def load(name: str, what: str) -> object:
    """The object that ``module:object`` names; the current folder is searched too."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise BadInput(f"{what} {name!r} must be written package.module:object.")
    _search_here()
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"{what} {name!r} cannot be loaded ({in_short(error)}); check the module and the name."
        ) from None
    return found


def _search_here() -> None:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def source_hash(name: str) -> str | None:
    """SHA-256 of the source file that ``module:object`` names, found without running it; None if there is no such file.

    Packages around the module are imported on the way: pin code that lies in a module of its own, or trust its package.
    """
    _search_here()
    module = name.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if found is None or found.origin is None or not Path(found.origin).is_file():
        return None
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()


def source_digest(name: str) -> str:
    """A digest of the source file behind ``module:object``, by which a run is bound to the code that it began with."""
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
