# Every target creates .venv itself when it is missing or when its inputs changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help demo test test-slow lint format bench clean

help:
	@echo "make demo       train baseline and CRL on embedded data, print the comparison (under 2 minutes)"
	@echo "make test       lint, types, import contracts and tests (WORKERS=2 processes)"
	@echo "make test-slow  the tests marked slow, which \"make test\" leaves out"
	@echo "make format     put the code into its canonical form"
	@echo "make bench      run the CPU benchmarks"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/confrank demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-slow: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m slow

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/ood.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
