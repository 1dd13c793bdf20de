# `make demo` and `make test` do all the set-up on a machine with Python 3.11, g++ and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
WORKERS ?= 2
LINT_THREADS ?= $(WORKERS)
SOURCES := $(shell find minductor pytest_plugin -name '*.py' -o -name '*.h' 2>/dev/null)

# Without it every process that a test starts compiles all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test suite test-all triton39 opinfo sanitize programs lint format docs bench clean

help:
	@echo "make demo      train a small transformer in eager and through minductor, side by side"
	@echo "make test      lint, types, house rules and all tests that are not long"
	@echo "make test-all  the long suites too; started again it goes on where it was stopped"
	@echo "make triton39  the tests of GPU kernels under another version of Triton: TRITON=3.9"
	@echo "make opinfo    every sample of torch's operator database, with its table"
	@echo "make sanitize  samples of the same under the address and undefined-behaviour sanitisers"
	@echo "make programs  2,000 random programs against eager, with their table"
	@echo "make lint      lint and types only"
	@echo "make format    put the layout of the sources in order"
	@echo "make docs      the documentation as a site, in build/site"
	@echo "make bench     eager, TorchInductor and minductor side by side"
	@echo "make clean     remove the environment and what tests left behind"

# A range of versions prefers a CPU build (2.13.0+cpu) where pip is shown one. Without --no-compile pip compiles every
# module of every package, on one core; Python compiles the third of them that is imported.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minductor needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile --editable '.[test,docs,page,browser]'
	@touch $@

demo: $(VENV)/ready
	$(PY) -m minductor demo

lint: $(VENV)/ready
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m codespell_lib
	$(PY) -m basedpyright --threads $(LINT_THREADS) --pythonpath $(PY)

format: $(VENV)/ready
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Lint runs beside the tests. A second thread would take it half as much again of the time of both cores.
test: $(VENV)/ready
	@$(MAKE) --no-print-directory -j2 LINT_THREADS=1 lint suite

suite: $(VENV)/ready
	$(PY) -m pytest -q -n $(WORKERS) --dist worksteal

# Beside the environment, whose own version stays.
TRITON ?= 3.9
triton39: $(VENV)/ready
	$(PY) -m pip install --quiet --no-deps --target .long/triton-$(TRITON) 'triton==$(TRITON).*'
	PYTHONPATH=.long/triton-$(TRITON) $(PY) -m pytest -q tests/e2e/test_interpret.py tests/test_compilation.py \
		tests/plugin/test_gpu_devices.py tests/e2e/test_gpu_kernels.py tests/runtime/test_cuda.py

# A stamp for each file with long tests, older than no source: what passed on these sources is not run again.
LONG := $(shell grep -rlE 'mark\.long\b' tests --include='test_*.py' 2>/dev/null)
test-all: test $(LONG:%.py=.long/%.passed) .long/properties.passed .long/opinfo.passed .long/programs.passed .long/sanitized.passed

.long/%.passed: %.py $(SOURCES)
	$(PY) -m pytest -q -m long -o faulthandler_timeout=3600 $<
	@mkdir -p $(@D) && touch $@

# The tests that hypothesis draws examples for, with ten times as many.
.long/properties.passed: $(SOURCES)
	$(PY) -m pytest -q -n $(WORKERS) --hypothesis-profile=many $$(grep -rl '^@given' tests --include='test_*.py')
	@mkdir -p $(@D) && touch $@

# Both go on where they were stopped, as long as the sources are the same.
.long/sources: $(SOURCES)
	@mkdir -p $(@D) && rm -f .long/*.jsonl && touch $@

.long/opinfo.passed: .long/sources
	$(PY) -m tests.opinfo --dtype all --mode all --jobs $(WORKERS) --results .long/opinfo.jsonl --bad
	@touch $@

# Kernels that end their process at an access outside a tensor or at undefined behaviour: a death is a failure.
.long/sanitized.passed: .long/sources
	$(PY) -m tests.opinfo --sanitize --dtype float32,bfloat16,int64 --mode forward,inplace,gradient,forward-dynamic \
	  --limit 10 --jobs $(WORKERS) --results .long/sanitized.jsonl --bad
	@touch $@

.long/programs.passed: .long/sources
	$(PY) -m tests.e2e.hunt --count 2000 --jobs $(WORKERS) --results .long/programs.jsonl --scripts .long/programs
	@touch $@

opinfo: $(VENV)/ready .long/opinfo.passed

sanitize: $(VENV)/ready .long/sanitized.passed

programs: $(VENV)/ready .long/programs.passed

# The variable turns off an advertisement.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

bench: $(VENV)/ready
	$(PY) -m minductor bench

clean:
	rm -rf $(VENV) .long .pytest_cache .ruff_cache .hypothesis build *.egg-info
