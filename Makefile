# Two commands do all the set-up: `make demo` and `make test`. Both make their own environment under .venv.
PYTHON ?= python3
# The tests of the neural encoder need torch. `make test EXTRAS=test` leaves it out; those tests then skip.
EXTRAS ?= test,neural

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check bench reproduce gpu-test gpu-bench clean

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

# Whether the numbers of benchmarks/reproductions.yaml come out here: make reproduce COLLECTIONS="FOLDER …"
reproduce: $(VENV)/$(EXTRAS)
	$(BIN)/python benchmarks/reproduce.py $(ENTRIES) $(if $(COLLECTIONS),--collections $(COLLECTIONS))

# For a host with a GPU, with its own Python and packages (benchmarks/gpu.md): nothing is installed here.
# make gpu-bench DEVICE=cpu SCALE=0.01 tries the scripts on a machine without a GPU.
GPU_PYTHON ?= python3
DEVICE ?= cuda
SCALE ?= 1
RESULTS ?= benchmarks/results

gpu-test:
	PYTHONPATH=. $(GPU_PYTHON) -m pytest -m gpu -W default -p no:cacheprovider tests

gpu-bench:
	for part in knn svr scoring parm whole; do \
		PYTHONPATH=. $(GPU_PYTHON) benchmarks/bench_gpu_$$part.py --device $(DEVICE) --scale $(SCALE) --results $(RESULTS) || exit; \
	done
ifneq ($(DEVICE),cpu)
	PYTHONPATH=. $(GPU_PYTHON) benchmarks/bench_longformer.py pydocs --device $(DEVICE) --dtype bfloat16 --more 4096 \
		--out $(RESULTS)/longformer-gpu.md
endif

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
