# `make` lists the targets. Everything happens in .venv and build/; nothing is done twice.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:  # each step uses all cores itself
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
CONFIGURE := $(CMAKE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja \
	-DPython_EXECUTABLE=$(CURDIR)/$(PY) -S . -B
# Files side by side; what a file's tests count is that process's alone.
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadfile
CTEST := $(VENV)/bin/ctest -j $(JOBS) --output-on-failure --no-tests=error --test-dir
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help dev test cpptest pytest demo bench check format formatcheck house lint lintall types \
	asan tsan wheel acceptance fuzz test-ops test-plugins test-spawns check-torch clean
help:  ## this list
	@sed -nE 's/^([a-z-]+):.*  ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

# --- what the targets stand on ----------------------------------------------------------------------

build/.apt.stamp: tools/apt_packages.txt
	tools/apt.sh
	@mkdir -p build && touch $@

$(PY): | build/.apt.stamp
	$(PYTHON) -m venv $(VENV)

# requirements/<name>.txt is installed: .venv/.build.stamp, .test.stamp, .demo.stamp, .dev.stamp.
$(VENV)/.%.stamp: requirements/%.txt $(wildcard requirements/*.txt) | $(PY)
	$(PY) -m pip install -q -r $<
	@touch $@

build/dev/build.ninja: | $(VENV)/.build.stamp
	$(CONFIGURE) build/dev -DXLA_INPLACE=ON

build/asan/build.ninja: | $(VENV)/.build.stamp
	$(CONFIGURE) build/asan -DXLA_SANITIZE=address,undefined

build/tsan/build.ninja: | $(VENV)/.build.stamp
	$(CONFIGURE) build/tsan -DXLA_SANITIZE=thread

# --- build and try ----------------------------------------------------------------------------------

dev: $(VENV)/.build.stamp build/dev/build.ninja  ## build what changed; `import torch_xla` works in .venv
	$(CMAKE) --build build/dev -j $(JOBS)
	@ln -sfn build/dev/compile_commands.json compile_commands.json
	@$(PY) tools/dev_install.py

demo: dev $(VENV)/.demo.stamp  ## train a small model on the CPU device
	$(PY) examples/train_digits.py $(ARGS)

bench: dev $(VENV)/.demo.stamp  ## time recording, steps, convolutions and collectives against torch
	$(PY) benchmarks/record.py $(ARGS)
	$(PY) benchmarks/convolution.py
	$(PY) benchmarks/collectives.py

wheel: dev  ## dist/torch_xla-*.whl out of the objects of build/dev
	@rm -rf dist
	PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(PY) -m pip wheel -q . -w dist --no-deps --no-build-isolation \
		-Cbuild-dir=build/dev -Ccmake.define.XLA_TESTS=ON -Ccmake.define.XLA_INPLACE=ON
	@ls dist/*.whl

# --- test -------------------------------------------------------------------------------------------

test: dev $(VENV)/.test.stamp  ## all tests, C++ (ctest) and Python (pytest); ARGS="..." goes to pytest
	@status=0; \
	$(CTEST) build/dev || status=1; \
	$(PYTEST) $(ARGS) || status=1; \
	exit $$status

cpptest: dev  ## the C++ tests alone
	$(CTEST) build/dev

pytest: dev $(VENV)/.test.stamp  ## the Python tests alone; ARGS="..." goes to pytest
	$(PYTEST) $(ARGS)

# Long sweeps, outside CI.
fuzz: dev $(VENV)/.test.stamp  ## random programs of views and writes against eager; ARGS="--programs 20000"
	$(PY) -m tests.views.fuzz $(ARGS)

test-ops: dev $(VENV)/.test.stamp  ## PyTorch's op_db against the CPU, an hour; ARGS="--mode backward --only sort"
	$(PY) -m tests.ops.sweep $(ARGS)

test-spawns: dev $(VENV)/.test.stamp  ## 100 spawns of 4 processes in a row; ARGS="--spawns 10"
	$(PY) tools/test_spawns.py $(ARGS)

build/plugins/.stamp: requirements/plugins.txt | $(PY)
	$(PY) -m pip install -q --no-deps --upgrade --target build/plugins -r $<
	@touch $@

test-plugins: dev $(VENV)/.test.stamp build/plugins/.stamp  ## conformance and acceptance on two other CPU plugins
	$(PY) tools/test_plugins.py build/plugins $(ARGS)

# A venv and a build of its own for each torch; TORCH is the version, as of a release.
TORCH ?= 2.14.1
OTHER := build/torch-$(TORCH)
check-torch: build/.apt.stamp  ## build and test the same source for another torch: TORCH=2.11.0
	tools/for_torch.sh $(TORCH) $(OTHER)
	$(MAKE) -C $(OTHER) test
	ACCEPTANCE=$${ACCEPTANCE:-$(abspath ../shared/acceptance)} $(MAKE) -C $(OTHER) acceptance

acceptance: wheel  ## the promised checks of ../shared/acceptance on the installed wheel
	$(PY) -m pip uninstall -q -y torch-xla
	$(PY) -m pip install -q --no-deps dist/torch_xla-*.whl
	@status=0; $(PY) tools/acceptance.py || status=1; \
	$(PY) tools/dev_install.py; exit $$status

# --- check ------------------------------------------------------------------------------------------

check: formatcheck house lint types asan tsan  ## all of: format, lint, types, sanitizers

format: $(VENV)/.dev.stamp  ## rewrite C++ and Python the way `check` wants them
	tools/format.sh

formatcheck: $(VENV)/.dev.stamp
	tools/format.sh --check

house:
	tools/check_house.sh

lint: build/dev/build.ninja $(VENV)/.dev.stamp  ## ruff on all, clang-tidy on what changed
	$(VENV)/bin/ruff check -q .
	@$(CMAKE) build/dev >/dev/null  # compile commands of new files
	$(PY) tools/clang_tidy.py $(ARGS)

lintall: ARGS := --all
lintall: lint  ## clang-tidy on all

types: $(VENV)/.dev.stamp  ## mypy
	$(VENV)/bin/mypy

# gcc 12's sanitizers want addresses that a kernel with much randomisation may not give.
NO_ASLR = $(shell setarch -R true 2>/dev/null && echo setarch -R)
asan: build/asan/build.ninja  ## C++ tests of the torch-free layers under address and undefined sanitizers
	$(CMAKE) --build build/asan -j $(JOBS)
	ASAN_OPTIONS=detect_stack_use_after_return=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp \
		UBSAN_OPTIONS=print_stacktrace=1 $(NO_ASLR) $(CTEST) build/asan

# Mutex misuse is not reported: half of each pair happens unseen in the plugin.
tsan: build/tsan/build.ninja  ## the same under the thread sanitizer
	$(CMAKE) --build build/tsan -j $(JOBS)
	TSAN_OPTIONS="report_mutex_bugs=0:suppressions=$(CURDIR)/tools/tsan.supp" $(NO_ASLR) $(CTEST) build/tsan

clean:  ## remove what was built (.venv stays)
	rm -rf build dist torch_xla/*.so compile_commands.json
