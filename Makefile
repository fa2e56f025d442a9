# make demo, test, test-all, test-weekly, bench, docs, gpu, release-check: each works from a fresh clone.
PYTHON ?= python3
EXTRAS ?=
BIN := .venv/bin
comma := ,
# Python compiles what is imported: pip would compile all, for half the time of an installation.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# Some environments forbid to write bytecode. Each of the many processes that tests start would then
# compile what it imports, for 0.3 s and more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-weekly installed-for-all test-lowest style pytest lint types types-of-windows bench results compare docs gpu release-check clean

# An environment without pip, which venv leaves where ensurepip is missing, would be taken for whole.
.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# A stamp per set of extras: nothing is reinstalled until pyproject.toml changes.
.venv/.installed-%: .venv/pyvenv.cfg pyproject.toml
	$(INSTALL) --constraint constraints.txt --editable '.$(if $(filter-out base,$*),[$*])'
	touch $@

demo: .venv/.installed-base
	$(BIN)/python examples/quickstart.py

TEST_EXTRAS = test,bench$(if $(EXTRAS),$(comma)$(EXTRAS))

# Two workers share the cores: neither is to wait for threads of the other's libraries.
test test-lowest: export OPENBLAS_NUM_THREADS = 1
test test-lowest: export OMP_NUM_THREADS = 1

# What a contributor needs, in a few minutes. mypy, which takes one core, runs beside the tests.
PYTEST = python -m pytest --numprocesses 2 --dist worksteal
test: style
	@$(MAKE) --no-print-directory --jobs 3 $(TYPES) pytest

pytest:
	$(BIN)/$(PYTEST) $(MARKS)

# All tests that need no GPU, with every extra.
ALL_EXTRAS = torch,jax,sparse,plot,cuda,dask,mpi,zarr,h5py,cli,tables,libraries
AND_SLOW = -m 'not exhaustive'
test-all:
	$(MAKE) --no-print-directory test EXTRAS=$(ALL_EXTRAS) MARKS="$(AND_SLOW)" TYPES="types types-of-windows"

# What test-all, docs and release-check need, by one installation: they can run at a time after it.
installed-for-all:
	$(MAKE) --no-print-directory .venv/.installed-test,bench,$(ALL_EXTRAS),docs,release
	touch .venv/.installed-test,bench,$(ALL_EXTRAS) .venv/.installed-docs .venv/.installed-release,test

# What takes too long for each change: the test data, the other seeds, whole suites of other libraries.
test-weekly:
	$(MAKE) --no-print-directory test EXTRAS=$(ALL_EXTRAS) MARKS="-m exhaustive" TYPES=

# All tests with the lowest versions that pyproject.toml allows.
LOWEST = .venv-lowest/bin/python
LOWEST_EXTRAS = test,sparse,plot,dask,h5py,mpi,zarr,cli,tables
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST) -m pip install --quiet --no-compile --constraint constraints-lowest.txt --editable '.[$(LOWEST_EXTRAS)]'
	.venv-lowest/bin/$(PYTEST) $(AND_SLOW)

# mypy for Windows takes as long again: `make test-all` runs it, too.
TYPES = types
lint: style $(TYPES)

style: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/mypy

types-of-windows: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32

bench: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/python -m benchmarks

# Some 20 minutes: what docs/benchmarks.md, docs/validation.md and README.md show.
results: .venv/.installed-$(TEST_EXTRAS)
	printf '# Results\n\nWritten by `make results`.\n\n' > benchmarks/results.md
	$(BIN)/python -m benchmarks --markdown >> benchmarks/results.md
	echo >> benchmarks/results.md
	$(BIN)/python -m benchmarks.power >> benchmarks/results.md
	echo >> benchmarks/results.md
	$(BIN)/python -m benchmarks.verdicts >> benchmarks/results.md

# The pages are in build/docs/index.html.
docs: .venv/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs

# What became slower since BASE, a commit: both are built and measured, in turn.
BASE ?= main
compare: .venv/.installed-$(TEST_EXTRAS)
	$(BIN)/asv machine --yes
	$(BIN)/asv continuous --factor 1.3 --interleave-rounds $(ASV) $(BASE) HEAD

# What would be published; nothing is.
release-check: .venv/.installed-release,test
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/python .ci/check_wheel.py

# On a machine with a GPU: the device's verdicts beside the host's, and their speed. EXTRAS=torch,jax
# adds peers, where their builds for CUDA are installed; INSTALLED=1 installs nothing and takes $(PYTHON)
# with the numba-cuda, torch, cupy and jax that it has (CUDA_HOME names the toolkit, if it is not found).
GPU_PYTHON = PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(if $(INSTALLED),$(PYTHON),$(BIN)/python)
gpu: $(if $(INSTALLED),,.venv/.installed-test,cuda$(if $(EXTRAS),$(comma)$(EXTRAS)))
	@$(GPU_PYTHON) -c "from calipers._cuda.runtime import require_device; require_device()"
	tested=0; CALIPERS_GPU=1 $(GPU_PYTHON) -m pytest tests/cuda/device || tested=$$?; \
	$(GPU_PYTHON) -m benchmarks.gpu || exit $$?; exit $$tested

clean:
	rm -rf .venv .venv-lowest .asv build dist
