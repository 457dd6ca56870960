# Three commands for people: `make train`, `make test` and `make docs`. Each installs .venv first.
PYTHON ?= python3
BIN := .venv/bin
# one pytest worker per core, with one thread each
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout 300

# options for `make train`, e.g. make train ARGS='--objective ce --seed 3'
ARGS ?=

# the rooms whose tests compare numbers
NUMERICAL = $(wildcard $(addprefix tests/,functional losses classifiers models objectives training))

# settings of the site's build; the gallery's examples run on one thread
SPHINX = OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --builder html --conf-dir docs --doctree-dir build/docs-state

.PHONY: train test test-elsewhere docs speed lint format wheel clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vmcr2 needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

train: .venv/ready
	$(BIN)/python -m vmcr2 train $(ARGS)

test: .venv/ready
	$(PYTEST)

# the numerical tests as on another machine: other vector instructions in torch and in MKL, another seed
test-elsewhere: .venv/ready
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE VMCR2_TEST_SEED=1 $(PYTEST) $(NUMERICAL)

# the site, into build/docs: open build/docs/index.html. A warning is an error. Nothing is kept from an earlier build:
# the gallery's pictures show what today's code does
docs: .venv/ready
	rm -rf build/docs build/docs-state docs/api docs/gallery
	$(SPHINX) --fail-on-warning --keep-going --quiet . build/docs

# wide bounds on ratios of times: that nothing became much slower
speed: .venv/ready
	$(BIN)/python -m vmcr2 bench check --wide

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
	rm -rf .venv build dist docs/api docs/gallery
