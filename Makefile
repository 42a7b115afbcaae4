# make demo      train GOAT, GAT and GraphSAGE-LSTM on a small graph and compare them
# make test      all tests, lint and type checks
# make browser   tests of the report in headless Chromium, which is installed with apt if missing
# make postgres  tests of the PostgreSQL example and of shared searches; the server is installed with apt if missing
# make fuzz      ten minutes of random tables, which must be read or rejected with an error message
# make attack    damaged and hostile run folders, killed trainings and random graphs on all backends; ten minutes at most
# make docs      the documentation with the API reference, in build/docs
# make bench     time and memory of the layer, of a training epoch and of the sampler, in build/bench
# Each target creates .venv on first use.

PYTHON ?= python3
BIN := .venv/bin
PINS := requirements.txt
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint $(PINS)

.PHONY: demo test browser postgres fuzz attack docs bench lint clean
.DEFAULT_GOAL := demo

.venv/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"torch-goat needs Python 3.11 to 3.13, but $(PYTHON) is {v[0]}.{v[1]}; run make PYTHON=python3.12")'
	@echo "Setting up .venv (a few minutes, once) ..."
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/%: .venv/pip pyproject.toml $(PINS)
	@$(INSTALL) --editable '.[$*]'
	@touch $@

demo: .venv/cli,cpu,report
	@$(BIN)/goat demo

# In the order of their names: xdist would start files of few tests last, and these start processes and take longest.
test: .venv/test lint
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# If Chromium or axe-core is missing and cannot be installed, its tests are skipped with a reason.
browser: .venv/test
	@$(MAKE) --no-print-directory .venv/browser || echo "Playwright cannot be installed here."
	@command -v chromium > /dev/null || timeout 300 sh -c 'apt-get update -q && apt-get install -q -y chromium' \
		|| echo "Chromium cannot be installed here."
	@test -d node_modules/axe-core || npm install --silent --no-save --no-package-lock axe-core@4 \
		|| echo "axe-core cannot be installed here."
	$(BIN)/pytest -m browser tests/app/report

# If PostgreSQL is missing and cannot be installed, the tests are skipped with a reason. They start their own server.
postgres: .venv/test,postgres
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null \
		|| { apt-get update -q && apt-get install -q -y postgresql; } \
		|| echo "postgresql cannot be installed here; its tests are skipped."
	$(BIN)/pytest -m postgres examples/postgres tests/experiments/search

fuzz: .venv/test
	$(BIN)/python -m tests.data.tables.fuzz --minutes 10

attack: .venv/test
	$(BIN)/python -m tests.attack --seconds 600

# -E reads every page again: otherwise pages of an earlier build would hide errors in changed docstrings.
docs: .venv/docs
	$(BIN)/sphinx-build -q -E -W --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html"

bench: .venv/bench
	$(BIN)/python benchmarks/layer.py --out build/bench
	$(BIN)/python benchmarks/epoch.py --out build/bench
	$(BIN)/python benchmarks/sampling.py --out build/bench

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
