# make run   a sweep of 3 decodings x 3 caches on the embedded model, ending in a table and a picture
# make test  the tests; make lint  ruff and mypy
# On a laptop without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu installs the small CPU build of torch.

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
TESTS ?= tests
PYTEST ?= -n auto
LIMIT ?= 40
BIN := $(VENV)/bin

export OMP_NUM_THREADS ?= 1

.PHONY: run test lint clean

run: $(VENV)/.installed
	$(BIN)/dinfer -m name=demo limit=$(LIMIT) decoding=steps decoding.tokens_per_step=2,4,8
	$(BIN)/dinfer -m name=demo limit=$(LIMIT) decoding=threshold decoding.threshold=0.5,0.7
	$(BIN)/dinfer -m name=demo limit=$(LIMIT) decoding=steps,threshold,credit cache=none,prefix,dual
	$(BIN)/dinfer-report runs/demo --format md --png runs/demo.png > runs/demo.md
	@echo "table: runs/demo.md, picture: runs/demo.png"

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PYTEST) $(TESTS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(BIN)/python
	$(BIN)/pip install --quiet --no-compile $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) 'torch>=2.11,<2.14'
	touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.torch
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.torch
	$(BIN)/pip install --quiet --no-compile --editable '.[test]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
