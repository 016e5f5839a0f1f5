# make            check and test
# make chat       chat with the default model; PROMPT="…" answers once, MODEL=… picks another
# make test       every check and every test
# make help       the rest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.PHONY: help setup dev chat test check pytest fix bench test-asan test-tsan clean

PYTHON ?= python3
MODEL ?= smollm2-135m-instruct
PROMPT ?=
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native CMakeLists.txt pyproject.toml -type f)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s $$'\t'

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: Python 3.10 or newer is needed, found $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "hint: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module" >&2; \
	  echo "hint: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || { \
	  echo "error: no C++ compiler was found" >&2; \
	  echo "hint: install g++ 12 or clang 15 or newer (apt install g++; xcode-select --install)" >&2; exit 1; }
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Built in place and installed editable: Python files count at once, native ones when they change.
$(VENV)/.installed: $(VENV)/.python $(NATIVE)
	@echo "Building the native core (a minute the first time)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check "scikit-build-core>=1.0" "nanobind>=3.1" "cmake>=3.21" ninja
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.installed ## Make the environment and build the package

# pip knows dependency groups since 25.1; the venv's own may be older.
$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	@echo "Installing what the checks and tests need (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --group dev
	@touch $@

dev: $(VENV)/.dev ## The same, with what the checks and tests need

chat: setup ## Chat in the terminal
	@$(BIN)/inferno chat "$(MODEL)" --prompt "$(PROMPT)"

test: check pytest ## Every check and every test

check: dev
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.h' -o -name '*.cpp')

pytest: dev
	@$(BIN)/python -c 'import inferno.hub as hub; hub.resolve("$(MODEL)")'
	@$(BIN)/python -m pytest

fix: dev ## Format and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/clang-format -i $$(find native -name '*.h' -o -name '*.cpp')

clean: ## Remove what was built
	rm -rf build dist $(VENV)
