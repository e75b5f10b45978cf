# `make` lists the targets. Everything happens in .venv and build/; nothing is done twice.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
CTEST := $(VENV)/bin/ctest
CONFIGURE := $(CMAKE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja -DPython_EXECUTABLE=$(CURDIR)/$(PY)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

help:  ## this list
	@sed -nE 's/^([a-z]+):.*  ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

# --- what the others need ------------------------------------------------------------------------
build/.apt: tools/apt_packages.txt
	tools/apt.sh
	@mkdir -p build && touch $@

$(VENV)/bin/python: | build/.apt
	$(PYTHON) -m venv $(VENV)

# .venv/.build.stamp, .test.stamp, .demo.stamp, .dev.stamp: requirements/<name>.txt is installed.
$(VENV)/.%.stamp: requirements/%.txt $(wildcard requirements/*.txt) | $(VENV)/bin/python
	$(PY) -m pip install -q -r $<
	@touch $@

build/dev/build.ninja: | $(VENV)/.build.stamp
	$(CONFIGURE) -S . -B build/dev -DXLA_INPLACE=ON

.PHONY: help dev
dev: $(VENV)/.build.stamp build/dev/build.ninja  ## build what changed and make `import torch_xla` work in .venv
	$(CMAKE) --build build/dev -j $(JOBS)
	@ln -sf build/dev/compile_commands.json .
	@$(PY) tools/dev_install.py
