# make            check and test
# make chat       chat with the default model; PROMPT="…" answers once, MODEL=… picks another
# make test       every check and every test
# make help       the rest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.PHONY: help setup dev chat test check docs page page-test pytest wheel wheel-test fix stub cases test-isas test-windows \
  test-macos test-asan test-tsan clean

PYTHON ?= python3
MODEL ?= smollm2-135m-instruct
PROMPT ?=
export MODEL PROMPT  # as variables of the shell: quotes and dollars in them stay what they are
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check
# pip says at length what it could not do; this comes last, and says what to do about it.
OR_HINT := || { echo "hint: if packages were not found, pip has no network: see its proxy and index" \
  "(pip config list), then run this again" >&2; exit 1; }
NATIVE := $(shell find native CMakeLists.txt pyproject.toml -type f)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s $$'\t'

$(VENV)/.python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "error: no Python was found ($(PYTHON))" >&2; \
	  echo "hint: install Python 3.10 or newer, or name it: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }
	@$(PYTHON) _build/prerequisites.py
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Built in place and installed editable: Python files count at once, native ones when they change.
$(VENV)/.installed: $(VENV)/.python $(NATIVE)
	@echo "Building the native core (two minutes the first time)"
	@$(INSTALL) "scikit-build-core>=1.0" "nanobind>=3.1" "cmake>=3.21" ninja $(OR_HINT)
	@$(INSTALL) --no-build-isolation -e . $(OR_HINT)
	@touch $@

setup: $(VENV)/.installed ## Make the environment and build the package

# pip knows dependency groups since 25.1; the venv's own may be older.
$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	@echo "Installing what the checks and tests need (once)"
	@$(INSTALL) "pip>=25.1" $(OR_HINT)
	@$(INSTALL) --group dev $(OR_HINT)
	@touch $@

dev: $(VENV)/.dev ## The same, with what the checks and tests need

chat: setup ## Chat in the terminal
	@$(BIN)/inferno chat "$$MODEL" --prompt "$$PROMPT"

test: check docs page-test cases pytest wheel-test ## Every check and every test

check: dev ## Formatting, lint and types
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@printf '%s\n' linux darwin win32 | xargs -P 3 -I{} $(BIN)/mypy --platform {} --cache-dir .mypy_cache/{}
	@$(BIN)/clang-format --dry-run --Werror $$(find native tests/emulation -name '*.h' -o -name '*.cpp')

# Its reference is made from the code. A link that leads nowhere is an error, and so is any warning.
docs: dev ## Build the documentation into build/site
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict >build/docs.log 2>&1 || { \
	  grep -v "^INFO" build/docs.log >&2; exit 1; }

# ---- the chat page, made of web/ by Node.js ----

PAGE := src/inferno/server/static/index.html
HAS_NPM := $(shell command -v npm)

web/node_modules/.package-lock.json: web/package-lock.json
	@command -v npm >/dev/null || { \
	  echo "error: npm was not found, which builds the chat page" >&2; \
	  echo "hint: install Node.js 20 or newer (apt install nodejs npm; brew install node)" >&2; exit 1; }
	@echo "Installing what the chat page is made with (once)"
	@cd web && npm ci --silent --no-audit --no-fund
	@touch $@

$(PAGE): web/node_modules/.package-lock.json $(shell find web -path web/node_modules -prune -o -type f -print)
	@cd web && npm run --silent build
	@touch $@

page: $(PAGE) ## Build the chat page that the server shows

ifdef HAS_NPM
page-test: page ## The page's checks and tests
	@cd web && npm run --silent check && npm run --silent test
else
page-test:
	@echo "No npm: the chat page is neither built nor tested"
endif

pytest: dev ## The tests alone
	@$(BIN)/python -c 'import inferno.hub, os; inferno.hub.resolve(os.environ["MODEL"])'
	@$(BIN)/python -m pytest

# The kernels' cases as programs, for instruction sets that this CPU need not have: AVX-VNNI in the encoding of AVX-512,
# intrinsics in plain C++, and Arm under an emulator. Where there is no cross compiler, the last say that they are skipped.
ARM_CXX := aarch64-linux-gnu-g++
cases: dev
	@if [ "$$(uname -m)" = x86_64 ]; then \
	  $(BIN)/cmake --build build/cp3* --target inferno_cases_evex inferno_cases_emulated >build/cases.log || \
	    { cat build/cases.log; exit 1; }; fi
	@if command -v $(ARM_CXX) >/dev/null; then \
	  { $(BIN)/cmake -S . -B build/arm -G Ninja -DCMAKE_BUILD_TYPE=Release -DINFERNO_CASES=ON \
	    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(ARM_CXX) && \
	    $(BIN)/cmake --build build/arm --target inferno_cases; } >build/arm.log || { cat build/arm.log; exit 1; }; \
	else echo "The Arm kernels are not tested: there is no $(ARM_CXX) (apt install g++-aarch64-linux-gnu qemu-user)"; fi

test-isas: cases ## Every instruction set, real or emulated, x86 and Arm
	@$(BIN)/python -m pytest -rs tests/laws/test_kernel_cases.py tests/laws/test_golden_logits.py \
	  tests/laws/test_hot_loops.py tests/laws/test_cpu_features.py tests/laws/test_float_environment.py

# Other systems, by a Clang that has the headers and libraries of all: the package ziglang, 90 MB to fetch, which nothing
# else here needs. What is for Windows runs under Wine; what is for macOS is compiled and linked, for nothing here runs it.
# The first time, libraries of C++ are compiled too.
ZIG := $(VENV)/.zig

$(ZIG): $(VENV)/.python
	@echo "Installing a compiler for other systems (once)"
	@$(INSTALL) "ziglang>=0.17" $(OR_HINT)
	@touch $@

# $(1) Zig's name of the target, $(2) the system and $(3) the CPU as CMake calls them
define cross
	@mkdir -p build
	@{ export CXX="$(abspath $(BIN))/python -m ziglang c++ -target $(1)" ZIG_GLOBAL_CACHE_DIR="$(abspath build/zig)" \
	    ZIG_LOCAL_CACHE_DIR="$(abspath build/zig)"; \
	  $(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_BUILD_TYPE=Release -DINFERNO_CASES=ON \
	    -DCMAKE_SYSTEM_NAME=$(2) -DCMAKE_SYSTEM_PROCESSOR=$(3) && \
	  $(BIN)/cmake --build build/$(1) --target inferno_cases; } >build/$(1).log 2>&1 || { cat build/$(1).log >&2; exit 1; }
endef

test-windows: dev $(ZIG) ## The kernels compiled for Windows, and run under Wine (a few minutes the first time)
	$(call cross,x86_64-windows-gnu,Windows,AMD64)
	@$(BIN)/python -m pytest -rs tests/laws/test_kernel_cases.py tests/laws/test_golden_logits.py -k windows

test-macos: dev $(ZIG) ## The native core compiled and linked for macOS, on Apple's CPUs and Intel's
	$(call cross,aarch64-macos,Darwin,arm64)
	$(call cross,x86_64-macos,Darwin,x86_64)

# ---- what people install ----

# Compiled already, by `setup`: the wheel takes seconds. Without npm it has no page.
wheel: dev $(if $(HAS_NPM),page) ## Build the sdist and the wheel, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --skip-dependency-check --sdist --wheel -o dist . >build/wheel.log 2>&1 || { \
	  cat build/wheel.log >&2; exit 1; }

# In an environment that has nothing else, outside of the repository.
wheel-test: wheel ## What is in them, and what the wheel does in an empty environment
	@rm -rf build/installed
	@$(PYTHON) -m venv --without-pip build/installed
	@$(BIN)/python -m pip --python build/installed install -q --disable-pip-version-check dist/*.whl $(OR_HINT)
	@$(BIN)/python -c 'import inferno.hub, os; inferno.hub.resolve(os.environ["MODEL"])'
	@INFERNO_DISTRIBUTIONS=dist INFERNO_INSTALLED=build/installed $(BIN)/python -m pytest tests/package

# A sanitized build stands beside the installed one: its own copy of the package, found first.
define sanitized
	@$(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINFERNO_SANITIZE=$(2) \
	  -DPython_EXECUTABLE=$(BIN)/python -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)" >build/$(1).log
	@$(BIN)/cmake --build build/$(1) >>build/$(1).log
	@$(BIN)/cmake --install build/$(1) --prefix build/$(1)/site >>build/$(1).log
	@cp -r src/inferno build/$(1)/site/
	@env LD_PRELOAD="$$($${CXX:-c++} -print-file-name=$(3)) $$($${CXX:-c++} -print-file-name=libstdc++.so.6)" \
	  PYTHONPATH=build/$(1)/site INFERNO_BESIDE=1 \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  TSAN_OPTIONS=halt_on_error=1 $(BIN)/python -m pytest -x $(4)
endef

test-asan: dev ## The suite under the address and undefined-behaviour sanitizers
	@mkdir -p build
	$(call sanitized,asan,address$(COMMA)undefined,libasan.so,tests)

test-tsan: dev ## The pool, the cache and the engine under the thread sanitizer
	@mkdir -p build
	$(call sanitized,tsan,thread,libtsan.so,tests/native/test_thread_pool.py tests/test_session.py)

COMMA := ,

fix: dev ## Format and mend what can be mended
	@$(BIN)/ruff check --fix -q .
	@$(BIN)/ruff format -q .
	@if [ -d web/node_modules ]; then cd web && npm run --silent fix; fi
	@$(BIN)/clang-format -i $$(find native tests/emulation -name '*.h' -o -name '*.cpp')

stub: setup ## Write the types of the native core anew
	@$(BIN)/python -m nanobind.stubgen -q -m inferno._native -p native/bindings/stub.txt -o src/inferno/_native.pyi

clean: ## Remove what was built
	rm -rf build dist $(VENV)
