# `make run` runs the live twin on an emulated cluster; `make test` runs every check.
# Both set up what they need in .venv first. PYTHON chooses the interpreter (3.11 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real traces and other simulators' outputs, where this machine has them.
SHARED := ../shared
export HPCTWIN_TRACES ?= $(if $(wildcard $(SHARED)/data),$(abspath $(SHARED)/data))
export HPCTWIN_GOLDEN ?= $(if $(wildcard $(SHARED)/golden),$(abspath $(SHARED)/golden))

# What processes import is kept compiled, and so are the tests' assertions: else each process does it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test lint compiled bounds-compiled unit bounds bench properties docs package clean

run: $(VENV)/run
	$(BIN)/hpctwin demo

# Linting and compiling take a core each.
test: $(VENV)/dev
	$(MAKE) -j3 -O lint compiled bounds-compiled
	$(MAKE) -k unit bounds

lint: $(VENV)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Beforehand: else each of pytest's processes would compile the engine for itself.
compiled: $(VENV)/dev
	$(BIN)/hpctwin warmup

bounds-compiled: $(VENV)/dev
	NUMBA_BOUNDSCHECK=1 $(BIN)/hpctwin warmup

# Beside a cluster or a twin, tests wait more than they compute: more processes than this needs at least cores.
unit: compiled
	$(BIN)/python -m pytest -q -n 4 --dist worksteal

# The engine once more, its power states too, with array bounds checked at each access; without what never
# runs the engine.
NO_ENGINE := tests/engine/test_numba.py tests/engine/test_startup.py tests/energy/test_calibration.py \
	tests/energy/test_cooling.py tests/energy/test_platform.py
bounds: bounds-compiled
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/engine tests/energy $(NO_ENGINE:%=--ignore=%)

bench: $(VENV)/dev
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/twin.py
	$(BIN)/python benchmarks/pas.py
	$(BIN)/python benchmarks/facility.py
	$(BIN)/python benchmarks/energy.py

# Property tests with new examples, for as long as one likes: make properties ROUNDS=100
ROUNDS ?= 10
properties: $(VENV)/dev
	$(BIN)/python benchmarks/properties.py --rounds $(ROUNDS)

docs: $(VENV)/dev
	$(BIN)/sphinx-build -q -W -j1 docs docs/_build

# What is given out, built into dist/ and tried in clean environments; no part of `make test`, it installs much.
RELEASE := build twine check-wheel-contents cyclonedx-bom uv 'sp-repo-review[cli]'
package:
	test -x $(VENV)/release/bin/python || $(PYTHON) -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip install -q --disable-pip-version-check $(RELEASE)
	$(VENV)/release/bin/repo-review .
	$(VENV)/release/bin/python contrib/release.py

$(VENV)/run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) out build dist docs/_build docs/_gallery
