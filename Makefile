# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := collector,judge,text,grpc,arrow,semantic

.PHONY: demo test check wheel bench house format docs clean

$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ragpulse needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv

$(VENV)/.collector: $(BIN)/uv pyproject.toml constraints.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[collector]'
	touch $@

$(VENV)/.development: $(VENV)/.collector
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(EXTRAS)]' --group test --group check
	touch $@

demo: $(VENV)/.collector
	$(BIN)/ragpulse demo

test: $(VENV)/.development
	$(BIN)/pytest -n 2 --dist loadfile

check: $(VENV)/.development
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

# The built wheel, in an empty environment: the SDK alone imports and names its extra, the collector runs the demo.
wheel: $(VENV)/.development
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/uv build --quiet --wheel --out-dir build/wheel .
	$(PYTHON) -m venv build/wheel/env
	$(BIN)/uv pip install --quiet --python build/wheel/env/bin/python --constraint constraints.txt build/wheel/*.whl
	cd build/wheel && env/bin/python -c 'import ragpulse' && ! env/bin/ragpulse demo
	$(BIN)/uv pip install --quiet --python build/wheel/env/bin/python --constraint constraints.txt "$$(ls build/wheel/*.whl)[collector]"
	cd build/wheel && env/bin/ragpulse demo

format: $(VENV)/.development
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(VENV)/.development
	$(BIN)/python docs/generate.py

bench: $(VENV)/.development
	$(BIN)/python benchmarks/all.py $(BENCH)

# The size and shape of the product code, beside the first build's.
house: $(VENV)/.development
	$(BIN)/python benchmarks/house.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
