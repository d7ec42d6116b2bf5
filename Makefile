# make eval    score solutions/examples here: verdicts and a leaderboard (on the GPU, or on the CPU where there is none)
# make test    ruff, mypy, import contracts, and the fast tier of the tests (FILES="tests/unit/core": only these tests)
# make test-changed  the tests that a change since BASE (default: origin/main) may affect
# make test-all      ruff, mypy, import contracts, and all tests (SHARD=1/4: a quarter of the files)
# make docs    the guides as a site with search and an API reference, in build/site; a warning is an error
# make mutants MODULE=harness/referee/timing/claims.py   small changes that the module's tests do not notice
# make doors   contract tests of the doors to trainers, each with its package in an environment of its own (build/doors)
# make warmup  what the first evaluation would otherwise wait for (done once, cached)
# make clean   remove .venv and caches
#
# PYTHON=...         the Python (3.11 or newer) to build .venv with
# HARNESS_SYSTEM=1   no .venv, nothing installed: use $(PYTHON) and the packages it has
# WORKERS=3          processes that run tests; one more than there are processors if it is not given, 2 to 12

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:

# One more, since a third of its time a test waits for processes that it started: two left two processors idle for that.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 11 ? 12 : n + 1)))

# A name on PATH may be a shim of a version manager that fails when run, or a Python without venv: so each is tried.
FIND_PYTHON = for name in python3.12 python3.11 python3.13 python3 python; do \
    if "$$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
    then echo "$$name"; exit 0; fi; done

ifdef HARNESS_SYSTEM
PYTHON ?= python3
RUN := $(PYTHON)
INSTALLED :=
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
RUN := .venv/bin/python
INSTALLED := .venv/.installed
endif

PYTEST = $(RUN) -m pytest -q $$($(RUN) -c "import xdist" 2>/dev/null && echo "-n $(WORKERS) --dist loadgroup")

.PHONY: eval test test-all test-changed docs doors mutants checks warmup clean install
.DEFAULT_GOAL := eval

install: $(INSTALLED)

eval: warmup
	@$(RUN) -m harness eval solutions/examples

warmup: $(INSTALLED)
	@$(RUN) -m harness warmup

# In .venv every tool is there. With HARNESS_SYSTEM a missing checker is named, and pytest still runs.
checks: $(INSTALLED)
	@has() { $(RUN) -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$$1') is None)"; }
	if has ruff; then $(RUN) -m ruff check .; else echo "ruff: not installed here, not run"; fi
	if has mypy; then $(RUN) -m mypy; else echo "mypy: not installed here, not run"; fi
	if has importlinter; then
	    $(RUN) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())" | sed -n '/^Contracts$$/,$$p'
	    $(RUN) -m tests.support.rooms
	else echo "lint-imports: not installed here, not run"; fi

test: checks
	@$(PYTEST) $(if $(FILES),$(FILES),--tier fast)

test-changed: checks
	@$(PYTEST) --changed $(or $(BASE),origin/main)

# The variable silences an advertisement of the theme for its successor. With --quiet, --strict would see no warning.
docs: $(INSTALLED)
	@$(RUN) -c "import material, mkdocstrings_handlers.python" 2>/dev/null || $(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --config-file .mkdocs.yml
	echo "build/site/index.html; with search: $(RUN) -m http.server --directory build/site"

mutants: $(INSTALLED)
	@$(RUN) -c "import cosmic_ray" 2>/dev/null || $(RUN) -m pip install -q -c constraints.txt -e '.[mutants]'
	$(RUN) -m tests.support.mutants $(MODULE)

doors: $(INSTALLED)
	@$(RUN) -m tests.support.doors $(DOOR)

test-all: checks
	@$(PYTEST) $(if $(SHARD),--shard $(SHARD))

.venv/.installed: pyproject.toml constraints.txt
	@python="$${PYTHON:-$$($(FIND_PYTHON))}"
	if [ -z "$$python" ]; then
	    echo "make: no Python >= 3.11 that can make a virtual environment was found on PATH." >&2
	    echo "Install one (on Debian: python3.11 and python3.11-venv), or name it: make PYTHON=/path/to/python" >&2
	    exit 3
	fi
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	    echo "make: $$python does not run or is older than Python 3.11" >&2
	    exit 3
	fi
	[ -x .venv/bin/python ] || "$$python" -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
