# Every target is a thin call of cmake, pip, ctest, pytest or a script in tools/. `make help` lists them.

BIN := .venv/bin
JOBS ?= $(shell nproc)
PRESET ?= release
RUNS ?= 300000
# Read by cmake --build, ctest and scikit-build-core alike.
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CTEST_PARALLEL_LEVEL := $(JOBS)

# Folders are in the list because their time changes when a file in them is removed.
SOURCES := $(shell find CMakeLists.txt pyproject.toml cmake include src cli python -not -path '*/__pycache__*' 2>/dev/null)
CPP = $(shell find include src cli python tests bench fuzz examples -name '*.[ch]' -o -name '*.[ch]pp' 2>/dev/null)
INSTALLED := build/python/installed
WARNINGS := --config-settings=cmake.define.GNOMON_WARNINGS_AS_ERRORS=ON

.PHONY: help setup build demo test test-cpp test-python test-module test-command test-arm64 fuzz lint tidy format bench mutants clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install what is missing: Debian packages, .venv
	@tools/setup

build: setup  ## build and install the Python package and the command .venv/bin/gnomon
	@$(MAKE) --no-print-directory $(INSTALLED)

# Not isolated, so that the pinned tools in .venv are used and the build folder stays valid from one time to the next; verbose,
# because compiling takes a while and says nothing otherwise. The stamp has the time of the start: what is edited meanwhile is newer.
$(INSTALLED): $(SOURCES) .venv/setup-stamp
	@mkdir -p $(@D) && touch $@.begun
	$(BIN)/pip install -v --no-build-isolation --no-deps --config-settings=build-dir=build/python $(WARNINGS) .
	@mv $@.begun $@

demo: build  ## the main job on a real model: its set-up, and its loss by position
	@tools/demo

test: lint build test-cpp test-python  ## everything: set-up, build, style, dependency rule, C++ and Python tests

# The release tests are built where the package is, so that the library is compiled once.
TESTS_IN := build/$(if $(filter release,$(PRESET)),python,$(PRESET))

test-cpp: $(if $(filter release,$(PRESET)),build,setup)  ## the C++ tests (PRESET=dev|release|asan|tsan|clang)
	cmake $(if $(filter release,$(PRESET)),-DGNOMON_BUILD_TESTS=ON build/python,--preset $(PRESET))
	cmake --build $(TESTS_IN) --target gnomon_tests
	ctest --test-dir $(TESTS_IN) --output-on-failure

# Two processes, as each keeps one core busy: the module and other people's expectations; the command and the packages.
test-python: build  ## the Python tests
	@$(MAKE) --no-print-directory --output-sync=target -j2 test-module test-command

test-module: build
	$(BIN)/pytest tests/python tests/conformance

test-command: build
	$(BIN)/pytest tests/cli tests/package

test-arm64:  ## tests of kernels, oracle, attention and caches, cross-compiled for arm64 and run under qemu (slow; not part of test)
	tools/test-arm64

fuzz: setup  ## every fuzz target, longer than the tests run it (RUNS=n inputs each)
	cmake --preset $(PRESET)
	cmake --build build/$(PRESET) --target $(filter-out fuzz_run,$(patsubst fuzz/%.cpp,fuzz_%,$(wildcard fuzz/*.cpp)))
	for target in build/$(PRESET)/fuzz/fuzz_*; do echo $$target && $$target --runs $(RUNS) --seed $$(date +%s) || exit 1; done

lint: setup  ## formatting, Python lint and the dependency rule
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	tools/check-dependencies

tidy: setup  ## clang-tidy over the library and the command (slow)
	cmake --preset $(PRESET)
	find src cli -name '*.cpp' -print0 | xargs -0 -n 1 -P $(JOBS) $(BIN)/clang-tidy --quiet -p build/$(PRESET)

format: setup  ## rewrite the sources in the project's style
	$(BIN)/clang-format -i $(CPP)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

mutants: setup  ## small wrong changes to the library, each of which a test must notice (slow; not part of test)
	tools/mutants

bench: build  ## speed: the kernels against a plain read and write, and against torch and transformers; reading models against parsing
	$(BIN)/gnomon bench rotate
	cmake --preset $(PRESET) && cmake --build build/$(PRESET) --target bench_read_model && build/$(PRESET)/bench/bench_read_model
	$(BIN)/python bench/compare.py
	$(BIN)/python bench/compare_attention.py

clean:  ## remove what was built (.venv stays)
	rm -rf build dist
