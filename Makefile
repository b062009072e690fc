# Each target creates .venv if it is missing, and updates it after a change of pyproject.toml or constraints.txt.
# `make demo` installs what confrank needs to run; every other target adds the development tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.PHONY: help demo test test-slow lint format docs bench clean

help:
	@echo "make demo       train baseline and CRL on embedded data and compare them (about 2 minutes)"
	@echo "make test       lint, types, import contracts and tests (WORKERS=2 processes)"
	@echo "make test-slow  the tests marked slow, which make test leaves out"
	@echo "make format     format the code"
	@echo "make docs       build the documentation into site/"
	@echo "make bench      run the CPU benchmarks"
	@echo "make clean      remove .venv and the caches"

$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $@

$(DEV): $(RUNTIME)
	$(INSTALL) -e '.[dev]'
	@touch $@

demo: $(RUNTIME)
	$(BIN)/confrank demo

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-slow: $(DEV)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m slow

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(DEV)
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/ood.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
