# Two commands on a fresh machine that has Python 3.11 to 3.13, git and make:
#   make serve    install into .venv, start the gateway on routes.yaml
#   make test     install the test tools and the peers' environments, run everything
# Each install is remembered by a stamp named after the pins it installed, so a repeated run costs nothing.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help serve test check bench mutants screenshots clean install install-dev peers

PYTHON ?= python3
ROUTES ?= routes.yaml
SERVE_ARGS ?=
# More than half of the tests' time is waiting, so there are two workers for each of the two cores of a small machine.
PYTEST_ARGS ?= -n 4 --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

run_pins := $(shell cat pyproject.toml requirements.txt | cksum | cut -d' ' -f1)
dev_pins := $(shell cat pyproject.toml requirements.txt requirements-dev.txt | cksum | cut -d' ' -f1)
RUN_STAMP := $(VENV)/.installed-run-$(run_pins)
DEV_STAMP := $(VENV)/.installed-dev-$(dev_pins)

help:
	@sed -n 's/^#   //p' Makefile

serve: install
	@exec $(BIN)/python examples/serve.py $(ROUTES) $(SERVE_ARGS)

# Both installs at once: the peers need no more of .venv than its pip.
test:
	@$(MAKE) --no-print-directory -j2 install-dev peers
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bench: install-dev
	@$(BIN)/python -m bench $(BENCH_ARGS)

# ROOM: folders or files. MUTANTS: how many of its mutants to draw; left out, all are tried.
mutants: install-dev peers
	@$(BIN)/python -m tests.mutants $(ROOM) $(MUTANTS)

peers: | $(BIN)/python
	@$(BIN)/python -m tests.support.peers

# The README's pictures of the console, taken anew.
screenshots: install-dev peers
	@$(BIN)/python -m tests.admin.screenshots

install: $(RUN_STAMP)
install-dev: $(DEV_STAMP)

# A .venv whose interpreter is gone (Python upgraded, folder moved) is made anew; a working one is kept.
# Only the python in PYTHON is named by default; the others are tried where it is too old or too new.
$(BIN)/python:
	@set -e; \
	fits() { "$$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }; \
	for python in '$(PYTHON)' python3.13 python3.12 python3.11; do \
	  if fits "$$python"; then \
	    echo "$(VENV): made with $$("$$python" --version) ($$(command -v "$$python"))"; \
	    "$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; exit 0; \
	  fi; \
	done; \
	echo 'Interlingua needs Python 3.11, 3.12 or 3.13; none of $(PYTHON), python3.13, python3.12, python3.11' \
	  'is one. Name yours with: make PYTHON=/path/to/python ...' >&2; exit 1

$(RUN_STAMP): | $(BIN)/python
	@echo 'installing requirements.txt into $(VENV)'
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps --config-settings editable_mode=compat -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

# The test tools include all that runs, so this satisfies the other stamp as well.
$(DEV_STAMP): | $(BIN)/python
	@echo 'installing requirements-dev.txt into $(VENV)'
	@$(PIP) -r requirements-dev.txt
	@$(PIP) --no-deps --config-settings editable_mode=compat -e .
	@rm -f $(VENV)/.installed-*
	@touch $(RUN_STAMP) $@

clean:
	rm -rf $(VENV) .peers build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
