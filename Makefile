# Everything that is installed goes into .venv; `make` alone lists what there is to do.
# PYTHON=/path/to/python3 chooses the interpreter for a new .venv (3.11 or newer, with venv and ensurepip).
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Compiled modules are kept, whatever the environment says: a test run starts a thousand Python processes.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
# A stamp says which extras are in .venv; a changed pyproject.toml installs again.
DEMO := .venv/installed-demo
DEV := .venv/installed-dev

# Longest waits first: workers take whole files in this order, and what is left at the end is short.
SUITES := system zookeeper spark compat simulation property contracts scenarios unit
# Tests mostly wait for brokers and servers, some two thirds of their time.
WORKERS ?= 4

.PHONY: help
help:
	@echo "make demo    run the whole thing on real data: 3 brokers, 336,776 flights, Spark, a kill -9, an audit"
	@echo "make test    the tests, with the coverage of the deciding floors (ARGS='-k name' for some, ARGS=--long for all)"
	@echo "make check   ruff, mypy --strict, import-linter: seconds"
	@echo "make bench   throughput, cost, latency, failover; beside Apache Kafka where mvn and java are (ARGS=--quick)"
	@echo "make console-bench  the web console with 10,000 and 39,000 partitions, ten tabs, an idle cluster (ARGS='--only huge')"
	@echo "make chaos   real brokers killed, stopped, restarted and cut off under load, and a ledger (MINUTES=5 SEED=n DISKS=1"
	@echo "             SECURE=1: TLS, logins that end, rights; STORE=zookeeper HOSTS=1: three hosts that lose power, and an ensemble)"
	@echo "make lake-chaos  a lake whose driver, workers and brokers are killed at every step, and a ledger (KILLS=60 SEED=n)"
	@echo "make exactly-once  members with transactions under kills and disk faults, and a judge (MINUTES=60 SEED=n DISKS=1)"
	@echo "make fuzz    damaged bytes for everything that reads bytes (READER=name INPUTS=n SEED=n MINUTES=n LIVE=1)"
	@echo "make sim     whole clusters in virtual time under random faults (SEEDS=1000, or SEED=4711 again)"
	@echo "make docs    write again what is made from code (status, pictures, events, commands), and build the site into site/"
	@echo "make clean   remove .venv, caches and what demo, bench, chaos and fuzz wrote"

.PHONY: demo
demo: $(DEMO)
	$(BIN)/holdfast demo $(ARGS)

.PHONY: test
test: $(DEV)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2 \
	  --cov --cov-branch --cov-report= $(wildcard $(addprefix tests/,$(SUITES))) $(ARGS)
	$(BIN)/python tools/coverage_floors.py

.PHONY: check
check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Both at once: they share nothing, and each has one core.
	$(BIN)/mypy & $(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests tests benchmarks tools \
	  && sources=0 || sources=$$?; wait $$! && exit $$sources
	$(BIN)/lint-imports

.PHONY: bench
bench: $(DEV)
	$(BIN)/python -m benchmarks.bench $(ARGS)

.PHONY: console-bench
console-bench: $(DEV)
	$(BIN)/python -m benchmarks.console_bench $(ARGS)

.PHONY: chaos
chaos: $(DEV)
	$(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(DISKS),--disks) \
	  $(if $(STORE),--store $(STORE)) $(if $(HOSTS),--hosts) $(if $(SECURE),--secure) $(ARGS)

.PHONY: lake-chaos
lake-chaos: $(DEV)
	$(BIN)/python -m tests.lake_chaos $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: exactly-once
exactly-once: $(DEV)
	$(BIN)/python -m tests.exactly_once $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(DISKS),--disks) $(ARGS)

.PHONY: fuzz
fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz $(if $(LIVE),--live) $(if $(READER),--reader $(READER)) $(if $(INPUTS),--inputs $(INPUTS)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

# make sim SEEDS=1000: that many fresh ones; SEED=4711: that one again, with its trace; PLANTED=H-01: a bug put back;
# STORE=zookeeper: with the metadata in a modelled ensemble
.PHONY: sim
sim: $(DEV)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(PLANTED),--planted $(PLANTED)) $(if $(STORE),--store $(STORE)) $(ARGS)

.PHONY: docs
docs: $(DEV)
	$(BIN)/python tools/status_page.py
	$(BIN)/python tools/authorization_page.py
	$(BIN)/python tools/state_pictures.py
	$(BIN)/python tools/event_page.py
	$(BIN)/python tools/command_page.py
	$(BIN)/mkdocs build --strict --quiet

.PHONY: clean
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage coverage.json
	rm -rf bench-results chaos-results fuzz-results demo-data dist site

$(BIN)/python:
	@for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating .venv with $$("$$candidate" --version) ($$(command -v "$$candidate"))"; \
	    "$$candidate" -m venv .venv; exit; \
	  elif command -v "$$candidate" >/dev/null; then \
	    found="$$found $$candidate=$$("$$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo broken)"; \
	  fi; \
	done; \
	echo "Holdfast needs Python 3.11 or newer with the venv and ensurepip modules; found:$${found:- no Python at all}." >&2; \
	echo "Install one (Debian, Ubuntu: python3 and python3-venv) or name it: make PYTHON=/path/to/python3" >&2; \
	exit 1

$(DEMO): pyproject.toml | $(BIN)/python
	@echo "installing Holdfast and what the demo needs into .venv (PySpark is large: some minutes the first time)"
	@$(PIP) -e '.[demo]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing Holdfast and what its tests need into .venv (PySpark is large: some minutes the first time)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(DEMO)
