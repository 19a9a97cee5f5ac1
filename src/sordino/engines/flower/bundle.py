"""The app folder that Flower wants, and the bundle it makes of it: a few lines that name the installed package's apps.

    python -m sordino.engines.flower.bundle FOLDER      writes the folder, for `flwr run FOLDER`

The bundle is the same on every machine with this version. A holder runs nothing out of a bundle; it only answers runs whose
bundle is the one that it would have made itself.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

CONFIG = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "sordino-app"
version = "{version}"
description = "Federated learning with adaptive differential privacy"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "sordino"
fab-include = ["sordino_app/**/*.py"]

[tool.flwr.app.components]
serverapp = "sordino_app.apps:server_app"
clientapp = "sordino_app.apps:client_app"

[tool.flwr.app.config]
plan = "plan.toml"
out = "run"
clients = 0
test = ""
classes = 0
certs = ""
resume = false
deadline = 600.0
wait = 600.0
"""
MODULE = '''"""The installed package's apps."""

from sordino.deployment.apps import client_app, server_app

__all__ = ["client_app", "server_app"]
'''


def files() -> dict[str, bytes]:
    """The files of a Flower app that runs Sordino, by name."""
    return {
        "pyproject.toml": CONFIG.format(version=version("sordino")).encode(),
        "sordino_app/__init__.py": b'"""Sordino on Flower."""\n',
        "sordino_app/apps.py": MODULE.encode(),
    }


def build() -> tuple[bytes, str]:
    """The bundle, and its SHA-256."""
    from flwr.cli.build import build_fab_from_files

    content, _ = build_fab_from_files(files())
    return content, hashlib.sha256(content).hexdigest()


def write(folder: Path) -> None:
    """Write the app into a folder, for `flwr run`."""
    for name, content in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
