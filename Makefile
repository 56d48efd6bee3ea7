# Every target does its own set-up: Python 3.11 to 3.13 and this file are enough.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
OUT ?= demo
# vLLM's build for CPUs has an environment of its own, and that one is of Python 3.11.
PYTHON_3_11 = $(shell for python in $(PYTHON) python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && command -v $$python && break; done)
VLLM_PIP := .venv-vllm/bin/python -m pip --disable-pip-version-check --quiet

# A container may forbid it; then each of the many processes compiles all that it imports: thrice the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo train test serve-test gpu-test lint proof docs dist bench soak clean help

help:  ## show what there is
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile

demo: .venv/.core  ## build a small dataset from rendered scenes and a page to look at
	$(BIN)/pairwright build --profile scenes --out $(OUT)
	$(BIN)/pairwright report $(OUT)

train: .venv/.train  ## after `make demo`: train a tiny model on it, SFT and then ADPO, with a page for each
	$(BIN)/pairwright train $(OUT) --objective sft
	$(BIN)/pairwright train $(OUT) --objective adpo --from sft

test: .venv/.tests  ## run the tests
	$(BIN)/python -m pytest -n $(or $(WORKERS),$(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal -m "not slow and not gpu and not live" $(ARGS)

serve-test: .venv/.tests .venv-vllm/.served  ## the tests against a real vLLM (3 GB to install, or 6 with CUDA's PyTorch)
	$(BIN)/python -m pytest -m live --timeout 900 $(ARGS)

gpu-test: .venv/.tests  ## the tests of a GPU; writes gpu-test.md, a table to send (ARGS=--dry-run tries them on the CPU)
	$(BIN)/python -m pytest -m gpu --timeout 3600 tests/gpu $(ARGS)

lint: .venv/.lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

proof: .venv/.tests  ## show what the data teaches: 100 minutes on two cores, a page in build/proof
	$(BIN)/python -m tests.proof.run_proof --to build/proof $(ARGS)

docs: .venv/.docs  ## write the reference pages from the source and build the documentation: site/index.html
	$(BIN)/python docs/write_pages.py
	$(BIN)/python docs/write_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: .venv/bin/python  ## build the wheel and the source archive, and check them: dist/
	$(PIP) install build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

bench: .venv/.tests $(if $(filter serve,$(BENCH)),.venv-vllm/.served)  ## measure; prints ratios of two sides measured in one run
	@for name in $(or $(BENCH),cluster store embed search train namc truth $(if $(wildcard .venv-vllm/.served),serve)); do $(BIN)/python -m tests.bench.bench_$$name || exit 1; done

soak: .venv/.tests  ## the long runs: faults, kills, launchers, clusters, servers, browsers
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile search --timeout 7200 $(ARGS)
	$(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

clean:  ## remove the environments and what demo made
	rm -rf .venv .venv-vllm demo site

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "No python3 was found: install Python 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "$(PYTHON) is $$($(PYTHON) -V): Python 3.11, 3.12 or 3.13 is needed (make PYTHON=python3.12 ...)"; exit 1; }
	$(PYTHON) -m venv .venv

# One call of pip for each: it takes minutes to find out that it has nothing to do. Nor is all compiled
# beforehand, a quarter of the time: what is imported is, when it first is.
.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile -c constraints.txt -e '.[cpu]'
	@touch $@

.venv/.train: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile -c constraints.txt -e '.[cpu,train]'
	@touch .venv/.core $@

.venv/.tests: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile -c constraints.txt -e '.[cpu,test]'
	@touch .venv/.core .venv/.train $@

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile -c constraints.txt -e '.[cpu,docs]'
	@touch .venv/.core $@

.venv/.lint: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile -c constraints.txt -e '.[cpu,test,lint]'
	@mkdir -p .venv/links/pairwright
	@for name in flows prompts schemas tasks pairwright/__init__.py; do ln -sfn ../../../$$name .venv/links/pairwright/; done
	@touch .venv/.core .venv/.train .venv/.tests $@

# Begun anew when it was killed half-way: pip takes a package whose files are half there for installed.
.venv-vllm/.served: tests/serving/requirements.txt $(wildcard tests/serving/vllm_name/*.*)
	@test -n "$(PYTHON_3_11)" \
		|| { echo "vLLM's environment needs Python 3.11, and $(PYTHON) is $$($(PYTHON) -V) (make PYTHON=python3.11 ...)"; exit 1; }
	rm -rf .venv-vllm
	$(PYTHON_3_11) -m venv .venv-vllm
	$(VLLM_PIP) install -c tests/serving/requirements.txt torch==2.13.0
	$(VLLM_PIP) install --no-deps -r tests/serving/requirements.txt
	cp -r tests/serving/vllm_name .venv-vllm/
	$(VLLM_PIP) install --no-deps --no-build-isolation .venv-vllm/vllm_name
	.venv-vllm/bin/python -m compileall -qq -j 0 .venv-vllm/lib >/dev/null || true  # some carry files of Python 2
	@touch $@
