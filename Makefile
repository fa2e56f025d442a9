# make demo, make test, make bench, make docs, make gpu: each works from a fresh clone.
PYTHON ?= python3
EXTRAS ?=
BIN := .venv/bin
comma := ,
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench docs gpu clean

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv

# A stamp per set of extras: nothing is reinstalled until pyproject.toml changes.
.venv/.installed-%: .venv/pyvenv.cfg pyproject.toml
	$(INSTALL) --constraint constraints.txt --editable '.$(if $(filter-out base,$*),[$*])'
	touch $@

demo: .venv/.installed-base
	$(BIN)/python examples/quickstart.py

TEST_EXTRAS = test,bench$(if $(EXTRAS),$(comma)$(EXTRAS))

test: .venv/.installed-$(TEST_EXTRAS) lint
	$(BIN)/python -m pytest --numprocesses 2

lint: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/python -m benchmarks

# The pages are in build/docs/index.html.
docs: .venv/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs

# On a machine with a GPU: the device's verdicts beside the host's, and their speed. EXTRAS=torch,jax
# adds peers, where their builds for CUDA are installed.
gpu: .venv/.installed-test,cuda$(if $(EXTRAS),$(comma)$(EXTRAS))
	CALIPERS_GPU=1 $(BIN)/python -m pytest tests/cuda
	$(BIN)/python -m benchmarks.gpu

clean:
	rm -rf .venv .asv build dist
