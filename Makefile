# Two commands on a fresh machine: `make run` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help run test quick lint bench clean
.DEFAULT_GOAL := help

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

run: $(VENV)/run  ## install and train on the embedded digits
	$(BIN)/sordino train

test: $(VENV)/test lint  ## install what tests need, lint, type-check and run all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

quick: $(VENV)/test  ## the tests that failed last, then the rest, without the linters
	$(BIN)/python -m pytest --ff -x

lint: $(VENV)/test  ## ruff and mypy
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

bench: $(VENV)/test  ## measure against the peers (installs them into benchmarks/venvs; takes a while)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/w3.py --json > benchmarks/results/w3.json
	$(BIN)/python benchmarks/accounting.py --json > benchmarks/results/accounting.json
	$(BIN)/python benchmarks/step.py > /dev/null
	$(BIN)/python benchmarks/performance.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# PyTorch first and by its exact version: a looser request may pull gigabytes of CUDA libraries.
$(VENV)/torch: $(VENV)/bin/python constraints.txt
	$(PIP) torch
	touch $@

BUILT_FROM = pyproject.toml setup.py $(wildcard src/sordino/native/*.c src/sordino/native/*.h src/sordino/native/*.inc)

$(VENV)/run: $(VENV)/torch $(BUILT_FROM)
	$(PIP) -e '.[train]'
	touch $@

$(VENV)/test: $(VENV)/torch $(BUILT_FROM)
	$(PIP) -e '.[all,test]'
	touch $@ $(VENV)/run
