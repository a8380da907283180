# SPDX-License-Identifier: Apache-2.0
#
# make demo and make test need Python 3.11 or newer with its venv module, and make; they set up
# the rest themselves in .venv. That folder belongs to this file: it is made anew when
# pyproject.toml changes, so keep nothing of your own in it. Nothing outside this folder is changed.

PYTHON ?= python3
# Further arguments for pytest, e.g. make test PYTEST_ARGS="-k settings"
PYTEST_ARGS ?=
# Tests that run at a time; many of them wait for other processes most of the time.
WORKERS ?= 4
# Which of them for make test-matrix, test-frameworks, test-receivers and bench; all by default.
NAME ?=

SHELL := /bin/sh
bin := .venv/bin
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# The tests start a thousand programs: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test coverage test-matrix test-install test-frameworks test-receivers bench docs \
	lint clean FORCE

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile

demo: .venv/.ready ## run a real Host Agent on real goals, then show its history
	@$(bin)/otel-taskhistory demo

test: lint ## formatting, lint, types, tests
	@echo "== tests"
	@$(bin)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

coverage: .venv/.ready-dev ## the tests again, and which lines they reach
	@$(bin)/python -m coverage erase
	@# Not pytest-cov: our own pytest plugin is imported before it could look.
	@$(bin)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)
	@$(bin)/python -m coverage combine --quiet
	@$(bin)/python -m coverage report

test-matrix: .venv/.ready-dev ## the tests on other Pythons, and with the oldest packages (NAME="3.12 oldest")
	@# One environment for each in .cache/matrix, with packages from PyPI.
	@$(bin)/python -m tests.matrix $(NAME) -- -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-install: .venv/.ready-dev ## install wheel and sdist into clean environments and run the demo
	@$(bin)/python -m tests.installed.clean

test-frameworks: .venv/.ready-dev ## run agents of real frameworks (NAME="pydantic-ai strands" for some)
	@# One environment for each in .cache/frameworks, with packages from PyPI; nothing else is asked.
	@$(bin)/python -m tests.frameworks.environments $(NAME)
	@FRAMEWORKS="$(or $(NAME),all)" $(bin)/python -m pytest $(PYTEST_ARGS) tests/frameworks

test-receivers: .venv/.ready-dev ## forward to real receivers (NAME="phoenix mlflow" for some)
	@# One environment for each in .cache/receivers, with packages from PyPI (1.7 GB for both).
	@$(bin)/python -m tests.receivers.environments $(NAME)
	@RECEIVERS="$(or $(NAME),all)" $(bin)/python -m pytest $(PYTEST_ARGS) tests/receivers

bench: .venv/.ready-dev ## run the benchmarks (NAME="durable_step storage" for some)
	@$(bin)/python -m bench $(NAME)

docs: .venv/.ready-docs ## build the documentation (docs/_build/html), to be read without a network
	@$(bin)/python -m docs.site

lint: .venv/.ready-dev ## formatting, lint and types only
	@echo "== formatting"
	@$(bin)/ruff format --check .
	@echo "== lint"
	@$(bin)/ruff check .
	@echo "== types"
	@$(bin)/mypy

clean: ## remove .venv and everything the tools left behind
	rm -rf .venv .cache .coverage .coverage.* htmlcov dist
	rm -rf docs/_build
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv -------------------------------------------------------------------------------------
#
# Three stamps, written last: .ready when the package is installed, .ready-dev when the tools of
# make test are too, .ready-docs when those of make docs are. The first holds the folder it was made in. When it is missing, when this
# folder was moved or copied, or when its Python is gone, .venv is made anew.

ifneq ($(shell test -x $(bin)/python && cat .venv/.ready 2>/dev/null),$(CURDIR))
.venv/.ready: FORCE
endif

.venv/.ready: pyproject.toml
	@rm -rf .venv
	@$(PYTHON) -c '' 2>/dev/null || { \
	  echo "There is no $(PYTHON) here. Install Python 3.11 or newer, or name one:" \
	       "make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but 3.11 or newer is needed. Name another:" \
	       "make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) lacks its venv module. On Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
	@echo "Setting up .venv (first run, or pyproject.toml has changed) ..."
	@$(PYTHON) -m venv .venv
	@# The pip that comes with Python 3.11 knows no --group.
	@$(bin)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(bin)/python -m pip install -qq --editable .
	@printf '%s\n' "$(CURDIR)" > $@

.venv/.ready-dev: .venv/.ready
	@echo "Adding what make test needs to .venv (first run, or pyproject.toml has changed) ..."
	@$(bin)/python -m pip install -qq --group dev
	@touch $@

.venv/.ready-docs: .venv/.ready
	@echo "Adding what make docs needs to .venv (first run, or pyproject.toml has changed) ..."
	@$(bin)/python -m pip install -qq --group docs
	@touch $@
