# `make demo` and `make test` do all the set-up by themselves; what is up to date is not done again.
# Its built-in rules would compile cpp/gpu/kernels.cpp as the program cpp/gpu/kernels, which is a folder.
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PRE_COMMIT_HOME := $(CURDIR)/build/pre-commit
# The package is built in one lasting folder, so that a changed source costs an incremental build.
export SKBUILD_BUILD_DIR := build/python
export SKBUILD_CMAKE_DEFINE := ZEROHOP_WERROR=ON$(GPUS:%=;ZEROHOP_GPUS=%)

PRESETS ?= release asan tsan
SOURCES := pyproject.toml CMakeLists.txt \
  $(shell find cpp python -name __pycache__ -prune -o -name .mypy_cache -prune -o -print)

##@ The two commands
.PHONY: demo test
demo: $(VENV)/installed ## processes exchange arrays through queue pairs (ARGS="--ranks 4")
	@zerohop demo $(ARGS)

test: lint ctest pytest mlx5 vm ## linters, C++ tests (release, ASAN+UBSAN, TSAN), Python tests, in virtual machines too

##@ Parts of them
.PHONY: build lint compile $(PRESETS:%=compile-%) ctest $(PRESETS:%=ctest-%) pytest mlx5 vm
build: $(VENV)/installed ## the package, built and installed into .venv

lint: $(VENV)/installed $(VENV)/test-group ## clang-format, ruff, mypy
	@git rev-parse --is-inside-work-tree >/dev/null || {
	  echo "make lint reads the list of files from git: run it in a git clone" >&2; exit 1; }
	pre-commit run --all-files --show-diff-on-failure

compile: $(PRESETS:%=compile-%) ## the C++ tests, compiled only (or: make compile-asan)
$(PRESETS:%=compile-%): compile-%: $(VENV)/test-group
	@export CUDA_HOME=$${CUDA_HOME:-$$(echo $(CURDIR)/$(VENV)/lib/python3*/site-packages/nvidia/cu13)}
	test -f build/$*/build.ninja || cmake --preset $* >build/$*.log 2>&1 || { cat build/$*.log; exit 1; }
	cmake --build --preset $*

ctest: $(PRESETS:%=ctest-%) ## the C++ tests in all three builds (or: make ctest-asan)
$(PRESETS:%=ctest-%): ctest-%: compile-%
	@ctest --preset $*

pytest: $(VENV)/installed $(VENV)/test-group ## the Python tests (ARGS="-k name")
	@test -z "$(ARGS)" || exec python -m pytest $(ARGS)
	python -m pytest -n 3 --dist loadfile --durations=15  # they mostly wait; a file's tests one after the other

mlx5: $(VENV)/installed $(VENV)/test-group $(VENV)/mlx5-packages ## libmlx5 on a simulated adapter (ZEROHOP_TEST_MLX5=full: all of the contract)
	@cmake --build $(SKBUILD_BUILD_DIR) --target mlx5sim mlx5sim_tests >build/mlx5sim.log 2>&1 || { cat build/mlx5sim.log; exit 1; }
	python -m pytest tests/mlx5 $(ARGS)

vm: $(VENV)/installed $(VENV)/test-group $(VENV)/vm-packages ## tests in virtual machines (ZEROHOP_TEST_VM=skip: none)
	@python -m pytest tests/vm $(ARGS)

##@ More
.PHONY: bench instructions endurance fuzz wheels docs stubs notebooks clean distclean help
bench: $(VENV)/installed $(VENV)/bench-packages ## soft0 beside UCX, iperf3 and plain TCP
	@zerohop bench soft --vs ucx,iperf3,tcp $(ARGS)

instructions: $(VENV)/installed $(VENV)/test-group ## what calls cost, counted by callgrind
	@cd tests && python -m support.instructions

endurance: $(VENV)/installed $(VENV)/test-group ## deaths, a thousand peers, half an hour of soak; its table (ARGS="--minutes 120")
	@PYTHONPATH=tests python -m endurance $(ARGS)

fuzz: $(VENV)/test-group $(VENV)/fuzz-packages ## what arrives from outside, by libFuzzer (ARGS="600 softhca": seconds, subjects)
	@.ci/fuzz $(ARGS)

wheels: $(VENV)/test-group ## wheels for other machines, of each Python that is found, and tried (ARGS="python3.12")
	@.ci/wheels $(ARGS)

docs: $(VENV)/installed $(VENV)/test-group ## the API reference, in build/docs; all links are checked
	@python .ci/docs build/docs

stubs: $(VENV)/installed $(VENV)/test-group ## regenerate python/zerohop/_core.pyi
	@.ci/stubs python/zerohop

notebooks: $(VENV)/installed $(VENV)/test-group ## run the notebooks and keep what they show
	@.ci/notebooks notebooks/*.ipynb

clean: ## remove what was built
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache $(VENV)/installed

distclean: clean ## and the virtual environment
	rm -rf $(VENV)

help: ## this list
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- set-up ---
$(VENV)/bin/python: .ci/packages
	@.ci/packages build
	test -x $@ || { echo "creating $(VENV)"; "$$(.ci/python)" -m venv $(VENV); }
	$@ -m pip install -qq --upgrade "pip>=25.1"
	touch $@

$(VENV)/build-group $(VENV)/test-group: $(VENV)/%-group: pyproject.toml $(VENV)/bin/python
	@.ci/packages $*
	echo "installing the $* tools into $(VENV)"
	mkdir -p build
	pip install -qq --group $* $(if $(filter test,$*),--group build --group lint)
	touch $@

$(VENV)/bench-packages $(VENV)/fuzz-packages $(VENV)/mlx5-packages $(VENV)/vm-packages: $(VENV)/%-packages: .ci/packages
	@test "$*-$(ZEROHOP_TEST_VM)" = vm-skip || .ci/packages $*
	touch $@

$(VENV)/installed: $(VENV)/build-group $(SOURCES)
	@echo "building and installing zerohop (log: build/install.log)"
	mkdir -p build
	pip install --verbose --no-build-isolation . >build/install.log 2>&1 || {
	  tail -n 60 build/install.log; exit 1; }
	grep -o -- '-- zerohop: .*' build/install.log || true
	touch $@
