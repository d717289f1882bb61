# Each verb sets up what it needs: a virtual environment in .venv, installed with the constraints.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: all demo test test-oldest slow-tests scale-tests zoo-tests chaos lint types docs notebooks results clean

all: lint types test

demo: .venv/installed
	$(BIN)/protofission demo --out demo

# One thread a process: test workers share two cores better than thread pools do, and some wait. A file
# is one worker's, so that what its tests share is made once; the longest ones begin first, by
# tests/conftest.py. Compiled tests are kept for all workers.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder
test: .venv/installed-dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) $(ARGS)

# The same tests with the oldest versions that pyproject.toml allows (of torch, the one that is pinned):
# old versions warn of each other, so warnings are no errors here.
test-oldest: .venv-oldest/installed
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -W default $(WORKERS) $(ARGS)

constraints-oldest.txt: pyproject.toml tests/oldest_versions.py
	$(PYTHON) tests/oldest_versions.py > $@

# Many kills, whole demos, ten thousand requests: what `make test` leaves out to stay short.
slow-tests: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow $(ARGS)

# Ray, Slurm and object stores with their libraries, which `make test` skips where they are missing.
scale-tests: .venv/installed-scale
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" \
	    tests/system/test_ray.py tests/system/test_launchers.py tests/data/test_remote_files.py \
	    tests/training/test_run_elsewhere.py $(ARGS)

# Models and detectors of timm, open_clip and pytorch-ood, which want torchvision.
zoo-tests: .venv/installed-zoo
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/models/test_other_libraries.py tests/triage/test_pytorch_ood.py \
	    $(ARGS)

# Faults at random for so many minutes, and a table of what became of them: docs/reliability.md.
MINUTES ?= 5
chaos: .venv/installed-dev
	$(BIN)/python tests/chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

# The site in site/: strict, so that a warning fails; offline, and nothing in it is fetched from elsewhere.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Runs the notebooks in place, so that their outputs are those of this version.
notebooks: .venv/installed-dev
	$(BIN)/python docs/notebooks/run.py

# Says which figures of the docs are older than the code they stand on, and makes these again, for hours.
# `python docs/results/results.py` only says; ARGS="power starts" names some.
results: .venv/installed-dev
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python docs/results/results.py --make $(ARGS)

clean:
	rm -rf .venv .venv-oldest demo dist chaos-out ray-kills-out site

INSTALL := $(BIN)/pip install --quiet -c constraints.txt -e

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

.venv-oldest/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet -c constraints-oldest.txt -e .[dev]
	touch $@

.venv/installed-docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .[docs]
	touch .venv/installed $@

.venv/installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .[dev]
	touch .venv/installed $@

.venv/installed-scale: .venv/installed-dev
	$(INSTALL) .[dev-scale]
	touch $@

.venv/installed-zoo: .venv/installed-dev
	$(INSTALL) .[dev-zoo]
	touch $@
