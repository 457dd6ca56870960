# Two commands for people: `make train` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
# one thread per worker: two workers on two cores, and no oversubscription inside torch
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

# what `make train` hands on, e.g. make train ARGS='--objective ce --seed 3'
ARGS ?=

.PHONY: train test lint format wheel clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vmcr2 needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

train: .venv/ready
	$(BIN)/python -m vmcr2 train $(ARGS)

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --timeout 300

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: .venv/ready
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf .venv build dist
