# Every target does its own set-up: Python 3.11 to 3.13 and this file are enough.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
OUT ?= demo

.PHONY: demo test lint bench soak clean help

help:  ## show what there is
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile

demo: .venv/.core  ## build a small dataset from rendered scenes and a page to look at
	$(BIN)/pairwright build --profile scenes --out $(OUT)
	$(BIN)/pairwright report $(OUT)

test: .venv/.tests  ## run the tests
	$(BIN)/python -m pytest -n $(or $(WORKERS),auto) --dist loadfile -m "not slow and not gpu and not live" $(ARGS)

lint: .venv/.lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: .venv/.tests  ## measure; prints ratios of two sides measured in one run
	@for name in $(or $(BENCH),cluster store build embed search); do $(BIN)/python -m tests.bench.bench_$$name || exit 1; done

soak: .venv/.tests  ## the long fault runs
	$(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

clean:  ## remove the environment and what demo made
	rm -rf .venv demo

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "No python3 was found: install Python 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "$(PYTHON) is $$($(PYTHON) -V): Python 3.11, 3.12 or 3.13 is needed (make PYTHON=python3.12 ...)"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e '.[cpu]'
	@touch $@

.venv/.tests: .venv/.core
	$(PIP) install -c constraints.txt -e '.[cpu,test]'
	@touch $@

.venv/.lint: .venv/.tests
	$(PIP) install -c constraints.txt -e '.[cpu,test,lint]'
	@touch $@
