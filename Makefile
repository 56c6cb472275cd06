# Two commands do all the set-up: `make demo` and `make test`. Both make their own environment under .venv.
PYTHON ?= python3
# The tests of the neural encoder need torch. `make test EXTRAS=test,docs` leaves it out; those tests then skip.
EXTRAS ?= test,neural,train,docs

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python tests/install.py

.PHONY: demo serve smoke test thorough interface lowest changelog lint check docs figures hostile browser best serving reproduce stale gpu-test gpu-check clean

demo: $(VENV)/base
	$(BIN)/haybale demo

# Search, review and training on pages, at a local address that it prints: make serve PORT=8000
PORT ?= 8000
serve: $(VENV)/serve,filters,documents
	test -f build/serve/engine/engine.json || $(BIN)/haybale index pydocs --out build/serve/engine
	$(BIN)/haybale serve build/serve/engine --port $(PORT)

# The base install on each Python that is named and there: a fresh environment, an engine, a ranking in a new process.
PYTHONS ?= python3.11 python3.12 python3.13
smoke:
	@for python in $(PYTHONS); do \
		if ! $$python -c "" 2>/dev/null; then echo "$$python: not installed here, skipped"; continue; fi; \
		folder=build/smoke-$$(basename $$python) && rm -rf $$folder && $(MAKE) --no-print-directory smoke-one \
			PYTHON=$$python VENV=$$folder || exit 1; \
	done

smoke-one: $(VENV)/base
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tests/smoke.py

# make thorough runs all tests; make test leaves out those that take long, which are benchmark scripts on tiny
# collections, and what shorter tests try in part. The environment and the browser are installed at the same time. The
# types are checked by a test, beside the others. The tests start hundreds of processes. Python may write compiled
# modules here, whatever the environment says; without them, each of these processes compiles every module again.
test: CHOSEN := -m "not thorough"
test thorough:
	@$(MAKE) --no-print-directory -j2 lint browser
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(CHOSEN)

thorough: interface

# The REST interface, tried by a fuzzer and by a generated client, each in an environment under build.
interface: $(VENV)/$(EXTRAS)
	OMP_NUM_THREADS=1 PYTHONPATH=tests:. $(BIN)/python tests/interface.py

# Most tests with the lowest versions that pyproject.toml allows, in an environment of their own. Warnings of old packages
# are no errors here, and types are checked with the versions of constraints.txt only. odfpy has no wheels. torch, which
# the extra neural needs, is the one of constraints.txt: older ones for the CPU alone are not on every index, and others
# take gigabytes. LOWEST_EXTRAS=test,neural,train,docs adds these extras, TESTS=tests/engine runs fewer tests.
LOWEST_EXTRAS ?= test
TESTS ?= tests haybale
LOWEST := build/lowest/bin/python
lowest:
	$(PYTHON) -m venv --clear build/lowest
	$(LOWEST) -m pip --disable-pip-version-check install -q --upgrade "pip>=26" "setuptools>=77" "uv>=0.9"
	$(if $(findstring neural,$(LOWEST_EXTRAS)),$(LOWEST) -m pip install -q --no-deps -c constraints.txt torch)
	grep ^torch== constraints.txt > build/lowest/torch.txt
	$(LOWEST) -m uv pip install -q --python $(LOWEST) --resolution lowest-direct -c build/lowest/torch.txt \
		--only-binary :all: --no-binary haybale --no-binary odfpy -e ".[$(LOWEST_EXTRAS)]"
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(LOWEST) -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		-W default -m "not thorough" --ignore tests/test_types.py $(TESTS)

# At a release: moves the files of changes/ into CHANGELOG.md, under the version of haybale/versions.py.
changelog: $(VENV)/$(EXTRAS)
	$(BIN)/towncrier build --yes

# The documentation site, into build/site; a warning is an error. The tests build it too.
docs: $(VENV)/$(EXTRAS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pictures of docs/tutorials/team.md: a walk through the pages of the service. Needs Chromium.
figures: $(VENV)/$(EXTRAS)
	OMP_NUM_THREADS=1 $(BIN)/python docs/figures.py

# Hostile input, thousands of cases of it; the tests try some hundreds.
hostile: $(VENV)/$(EXTRAS)
	OMP_NUM_THREADS=1 PYTHONPATH=tests:. $(BIN)/python -m hostile.driver --cases 8000

# The tests that look at pages in a real browser skip without one. CI, where it may, installs Debian's.
browser:
	@if [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& ! command -v chromium chromium-browser google-chrome >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null \
			|| echo "no browser could be installed: its tests will skip"; \
	fi

lint: $(VENV)/$(EXTRAS)
	$(BIN)/ruff check .

check: lint
	$(BIN)/mypy

# Effectiveness, of tuned BM25 to Learned: make best COLLECTIONS="FOLDER …" ENCODER="--encoder FOLDER --work FOLDER"
best: $(VENV)/base
	$(BIN)/python benchmarks/bench_best.py pydocs $(COLLECTIONS) $(ENCODER)

# What an engine costs to build, keep, open, ask and grow, on the same.
serving: $(VENV)/base
	$(BIN)/python benchmarks/bench_serving.py pydocs $(COLLECTIONS)

# The result pages whose code changed since they were measured, and what README and docs claim from them.
stale: $(VENV)/base
	$(BIN)/python benchmarks/stale.py

# Whether the numbers of benchmarks/reproductions.yaml come out here: make reproduce COLLECTIONS="FOLDER …"
reproduce: $(VENV)/$(EXTRAS)
	$(BIN)/python benchmarks/reproduce.py $(ENTRIES) $(if $(COLLECTIONS),--collections $(COLLECTIONS))

# For a host with a GPU, with its own Python and packages (benchmarks/gpu.md): nothing is installed here.
# make gpu-check DEVICE=cpu SCALE=0.01 tries the script on a machine without a GPU.
GPU_PYTHON ?= python3
DEVICE ?= cuda
SCALE ?= 1
RESULTS ?= benchmarks/results

gpu-test:
	PYTHONPATH=. $(GPU_PYTHON) -m pytest -m gpu -W default -p no:cacheprovider tests

# Tests, doctor and measurements in at most eight minutes: make gpu-check PARTS="knn bags"
gpu-check:
	PYTHONPATH=. $(GPU_PYTHON) benchmarks/bench_gpu.py $(PARTS) --device $(DEVICE) --scale $(SCALE) --results $(RESULTS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/base: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL)
	touch $@

$(VENV)/serve,filters,documents: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) serve,filters,documents
	touch "$@"

$(VENV)/$(EXTRAS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) $(EXTRAS)
	touch "$@"

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
