"""``python -m sordino`` is the command line."""

from sordino.cli.main import run

run()
