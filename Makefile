# Two commands do all the set-up: `make demo` and `make test`. Both make their own environment under .venv.
PYTHON ?= python3
# The tests of the neural encoder need torch. `make test EXTRAS=test` leaves it out; those tests then skip.
EXTRAS ?= test,neural

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check bench clean

demo: $(VENV)/base
	$(BIN)/haybale demo

test: $(VENV)/$(EXTRAS) check
	$(BIN)/python -m pytest

check: $(VENV)/$(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/mypy

# The comparison tables of the built-in collection, and of those named: make bench COLLECTIONS="FOLDER …"
bench: $(VENV)/base
	$(BIN)/python benchmarks/bench_rankers.py pydocs $(COLLECTIONS)

$(VENV)/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/$(EXTRAS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e ".[$(EXTRAS)]"
	touch "$@"

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
