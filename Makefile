# `make run` runs the live twin on an emulated cluster; `make test` runs every check.
# Both set up what they need in .venv first. PYTHON chooses the interpreter (3.11 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := packages/hpctwin-sizing packages/hpctwin-papers
EDITABLE := $(PACKAGES:%=-e %)
# Real traces and other simulators' outputs, where this machine has them.
SHARED := ../shared
export HPCTWIN_TRACES ?= $(if $(wildcard $(SHARED)/data),$(abspath $(SHARED)/data))
export HPCTWIN_GOLDEN ?= $(if $(wildcard $(SHARED)/golden),$(abspath $(SHARED)/golden))

# What processes import is kept compiled, and so are the tests' assertions: else each process does it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check changed lint prose compiled bounds-compiled collected unit bounds bench properties docs package container pythons oldest clean

run: $(VENV)/run
	$(BIN)/hpctwin demo

# Linting and compiling take a core each. Where tests wait for a cluster or a twin, those with bounds checked compute.
test: $(VENV)/dev
	$(MAKE) -j3 -O lint compiled bounds-compiled collected
	$(MAKE) -k -j2 -Oline unit bounds

# An answer in about two minutes: lint, types, language, the tests of what changed, and the engine's core guarantees.
check: $(VENV)/dev
	$(MAKE) -j2 -O lint changed

CORE := tests/engine/test_by_hand.py tests/engine/test_guarantees.py tests/engine/test_against_reference.py \
	tests/engine/test_shared_against_reference.py tests/energy/test_by_hand.py tests/twin/test_core.py
changed: $(VENV)/dev
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not (slow or slurm or redis or browser)" $(CORE) \
		$$($(BIN)/python contrib/changed_tests.py)

lint: $(VENV)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python contrib/prose.py

# The language of documentation, docstrings, comments and messages; one file: python contrib/prose.py FILE
prose: $(VENV)/dev
	$(BIN)/python contrib/prose.py

# Beforehand: else each of pytest's processes would compile the engine for itself.
compiled: $(VENV)/dev
	$(BIN)/hpctwin warmup

bounds-compiled: $(VENV)/dev
	NUMBA_BOUNDSCHECK=1 $(BIN)/hpctwin warmup

# What tests import is byte-compiled once: else each of pytest's processes would do it. Errors are left to `unit`.
collected: $(VENV)/dev
	-@$(BIN)/python -m pytest -q --collect-only >/dev/null

# Beside a cluster or a twin, tests wait more than they compute: more processes than this needs at least cores.
unit: compiled
	$(BIN)/python -m pytest -q -n 4 --dist worksteal

# The engine once more, its power states and agents too, with array bounds checked at each access; without what never
# runs the engine.
NO_ENGINE := tests/engine/test_numba.py tests/engine/test_startup.py tests/energy/test_calibration.py \
	tests/energy/test_cooling.py tests/energy/test_platform.py
bounds: bounds-compiled
	NUMBA_BOUNDSCHECK=1 nice $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/engine tests/energy tests/learn/test_many.py packages/hpctwin-sizing/tests packages/hpctwin-papers/tests/test_spars.py $(NO_ENGINE:%=--ignore=%)

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
package: $(VENV)/release
	$(VENV)/tools/bin/repo-review .
	$(VENV)/tools/bin/python contrib/release.py

# Images, by podman, docker, buildah or apptainer; says so where none of them can.
container:
	contrib/container/build

# A part of the tests that meets each dependency, under other Pythons (make pythons PYTHONS=3.13; pyenv's are found
# where PYENV_VERSION names them, others where PATH does) and with the oldest versions that pyproject.toml allows.
PYTHONS ?= 3.12 3.13 3.14
UV := $(VENV)/tools/bin/uv pip install -q
USED := live,energy,cooling,batsim,learn,web,search,dask
MEETING := tests/engine/test_by_hand.py tests/energy/test_by_hand.py tests/cli/test_cli.py tests/cli/test_shape.py \
	tests/formats tests/model tests/policies tests/metrics/test_job_metrics.py tests/simulation/test_simulation.py \
	tests/report/test_plots.py tests/sweep/test_search.py
TESTERS := pytest pytest-xdist hypothesis ipykernel

pythons: $(VENV)/release
	set -e; for version in $(PYTHONS); do \
	  $(VENV)/tools/bin/uv venv -q --clear --python $$version $(VENV)/python-$$version; \
	  $(UV) --python $(VENV)/python-$$version -e '.[$(USED)]' $(EDITABLE) $(TESTERS); \
	  $(VENV)/python-$$version/bin/python -m pytest -q -p no:cacheprovider $(MEETING); \
	done

# Old versions warn of what newer ones have done since. Without mcp, which asks for newer ones of others, and train, whose
# PyTorch is some gigabytes.
oldest: $(VENV)/release
	$(VENV)/tools/bin/uv venv -q --clear --python 3.11 $(VENV)/oldest
	$(UV) --python $(VENV)/oldest --resolution lowest-direct -e '.[$(USED)]' $(EDITABLE)
	$(UV) --python $(VENV)/oldest $(TESTERS)
	$(VENV)/oldest/bin/python -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning $(MEETING)

RELEASE := build twine check-wheel-contents cyclonedx-bom uv 'sp-repo-review[cli]' pyright
$(VENV)/release: pyproject.toml
	test -x $(VENV)/tools/bin/python || $(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install -q --disable-pip-version-check $(RELEASE)
	touch $@

# uv installs faster than pip. It does not read pip's configuration: where that names an index, pip installs. Modules are
# byte-compiled when they are imported first, which is a quarter of them.
FAST := $(shell command -v uv)
MAKE_VENV := $(if $(FAST),$(FAST) venv -q --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
# In a variable, as a comma would end an argument of `call`.
WITH_TOOLS := '.[dev,docs]'
by_uv = $(1) pip install -q --python $(BIN)/python $(2)
install = $(if $(FAST),$(call by_uv,$(FAST),$(1)),\
	{ ! $(BIN)/python -m pip config list | grep -q '\.index-url' && $(PIP) --only-binary :all: uv && \
	$(call by_uv,$(BIN)/uv,$(1)); } || $(PIP) $(1))

$(VENV)/run: pyproject.toml $(PACKAGES:%=%/pyproject.toml)
	test -x $(BIN)/python || $(MAKE_VENV)
	$(call install,-e . $(EDITABLE))
	touch $@

$(VENV)/dev: pyproject.toml $(PACKAGES:%=%/pyproject.toml)
	test -x $(BIN)/python || $(MAKE_VENV)
	$(call install,-e $(WITH_TOOLS) $(EDITABLE))
	touch $@

clean:
	rm -rf $(VENV) out build dist docs/_build docs/_gallery
