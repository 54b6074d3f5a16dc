# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := collector,judge,text,grpc,arrow,semantic,topics,local,mcp
# Containers often set it. Then each of the tests' many processes compiles every package that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test foreign check wheel floors dist release bench house format docs site clean applications clients

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
	$(BIN)/ragpulse demo --exit

test: $(VENV)/.development
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# The genuine metrics of other packages, each in a cached environment of its own; FOREIGN=ragas for one.
foreign: $(VENV)/.development
	$(BIN)/python tests/foreign.py $(FOREIGN)

check: $(VENV)/.development
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

# The built wheel in an empty environment for each extra: pytest, a traced call, and the extra's own use. WHEEL=collector for one.
wheel: $(VENV)/.development
	$(BIN)/python tests/installed.py newest $(WHEEL)

# The same with every declared minimum version at once.
floors: $(VENV)/.development
	$(BIN)/python tests/installed.py floors $(WHEEL)

# The wheel and the source distribution of a release.
dist: $(BIN)/uv
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist .

# Everything of a release until something leaves the computer: addresses, distributions, SBOM and sums in dist/, the site.
# TAG=v0.2.0, URL=https://HOST/OWNER/NAME; without URL the metadata has no addresses, and the check at the end says so.
TAG ?= v$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
release: $(VENV)/.development site
	$(if $(URL),$(BIN)/python .ci/addresses.py $(URL))
	$(MAKE) --no-print-directory dist
	$(BIN)/python .ci/sbom.py dist
	$(BIN)/python .ci/built.py $(TAG) dist

format: $(VENV)/.development
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(VENV)/.development
	$(BIN)/python docs/generate.py

# The documentation site in build/site, with pages of the demo; a link or an anchor that leads nowhere fails it.
$(VENV)/site/.complete: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(VENV)/site
	$(BIN)/uv pip install --quiet --python $(VENV)/site/bin/python --group site
	touch $@

site: $(VENV)/site/.complete $(VENV)/.development
	NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(VENV)/site/bin:$$PATH" $(VENV)/site/bin/mkdocs build --quiet
	$(BIN)/python docs/llms.py build/site
	$(BIN)/python docs/demo_pages.py build/site/demo

bench: $(VENV)/.development
	$(BIN)/python benchmarks/all.py $(BENCH)

# The newest clients, each run for real; records what they send and prints what ragpulse makes of it.
clients: $(VENV)/.development
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/clients/run.py $(CLIENTS)
	$(BIN)/python tests/clients/table.py

# Real applications in environments of their own, kept under the user's cache: what arrived beside what was expected.
applications: $(VENV)/.development
	$(BIN)/python benchmarks/applications/run.py $(APPLICATIONS)

# The size and shape of the product code, beside those of version 0.1.
house: $(VENV)/.development
	$(BIN)/python benchmarks/house.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
