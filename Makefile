# `make` lists the targets. Everything is installed into $(VENV) and nowhere else.
VENV ?= .venv
PYTHON ?= python3
# Twice as many as CI has cores, for most tests wait half of their time.
WORKERS ?= 4
# The order of the tests and their random numbers: the same in each run, so that a run without a
# failure stays one. `make fuzz` and `make coverage` take another order each time.
SEED ?= 1
# How many orders of faults `make fuzz` tries on real gateways.
SCHEDULES ?= 10
ARGS ?=
# How long `make fuzz` feeds the parsers, all of them together.
FUZZ_SECONDS ?= 3600

BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Where it is set, every one of a thousand processes would compile what it imports anew.
export PYTHONDONTWRITEBYTECODE :=
PACKAGE := pyproject.toml src/penstock/_version.py
SETUP = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Penstock needs Python 3.11 or newer, which $(PYTHON) is not: apt-get install python3 python3-venv," \
		"or name another, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
	$(PYTHON) scripts/setup_venv.py $(VENV)

.DEFAULT_GOAL := help
.PHONY: help run test test-peers coverage fuzz lint docs bench lock clean
.DELETE_ON_ERROR:

help: ## list the targets
	@echo "Penstock. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-19s %s\n", $$1, $$2}'

run: $(VENV)/.run-stamp ## install what is needed, then serve on http://127.0.0.1:8400
	@exec $(BIN)/penstock serve $(ARGS)

test: $(VENV)/.test-stamp ## install what the tests need, then run them (ARGS="-k name" narrows)
	@scripts/test-services
	@$(PYTEST) --randomly-seed=$(SEED) -m "not peers" $(ARGS)

test-peers: $(VENV)/.test-stamp ## the tests that install other programs: SDKs, clients, suites; and benchmarks
	@scripts/test-services
	@$(PYTEST) --randomly-seed=$(SEED) -m peers $(ARGS)

coverage: $(VENV)/.test-stamp ## run the tests and measure which lines they reach
	@scripts/test-services
	@mkdir -p .cache/coverage
	@$(PYTEST) --cov $(if $(ARGS),--cov-fail-under=0) $(ARGS)

fuzz: $(VENV)/.test-stamp ## search for new failures: property tests at random, then the parsers for FUZZ_SECONDS
	@scripts/test-services
	@failed=0; \
	HYPOTHESIS_PROFILE=search FAULT_SCHEDULES=$(SCHEDULES) \
		$(PYTEST) -m "hypothesis or schedules" $(ARGS) || failed=1; \
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) || failed=1; \
	exit $$failed

lint: $(VENV)/.test-stamp ## format, style, types, layers, sizes and documentation checks
	@VENV=$(VENV) scripts/lint

docs: $(VENV)/.test-stamp ## build the documentation into site/
	@$(BIN)/zensical build --clean --strict
	@echo "Open site/index.html"

bench: $(VENV)/.test-stamp ## run every benchmark (ARGS=--quick for a short run)
	@set -e; for file in bench/[a-z]*.py; do \
		[ -e "$$file" ] || continue; \
		echo "== $$file"; $(BIN)/python "$$file" $(ARGS); \
	done

lock: ## rewrite requirements/*.txt (ARGS=--upgrade for newer versions)
	@scripts/lock $(ARGS)

clean: ## remove the environment, caches and built files
	@rm -rf $(VENV) .cache .pytest_cache .hypothesis .coverage .coverage.* htmlcov site dist build
	@find src tests bench scripts examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.run-stamp: requirements/run.txt $(PACKAGE)
	@$(SETUP) requirements/run.txt
	@touch $@

$(VENV)/.test-stamp: requirements/test.txt $(PACKAGE)
	@$(SETUP) requirements/test.txt
	@touch $@ $(VENV)/.run-stamp
