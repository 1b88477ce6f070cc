# Two commands: `make demo` trains, searches and exports a small model; `make test` runs the whole test suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick lint types format clean

demo: $(VENV)/.installed
	$(BIN)/fitformer fit recipes/demo.yaml

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q

quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m "not slow"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs/demo

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fitformer needs Python 3.11 or newer; use make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[fit]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[fit,test]'
	touch $@
