# Each target makes what it needs; nothing has to be done by hand before it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Test files run side by side: most of them wait for processes more than they compute.
JOBS ?= 3
OUT ?=

.PHONY: help up test test-engine check format bench-overhead bench-accounting bench-admission bench-overload bench-fleet bench-routing lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /\t/' | expand -t 20

# One stamp a lock: a second run costs nothing until the lock or pyproject.toml changes.
$(VENV)/.runtime: requirements.lock pyproject.toml
	@$(PYTHON) deploy/make_venv.py "$(VENV)" requirements.lock
	@touch "$@"

$(VENV)/.dev: requirements-dev.lock pyproject.toml
	@$(PYTHON) deploy/make_venv.py "$(VENV)" requirements-dev.lock
	@touch "$@" "$(VENV)/.runtime"

up: $(VENV)/.runtime ## Run the gateway on this machine: databases, engine, planes (ARGS="--port 9000")
	@exec $(BIN)/python -m gateway.cli.main up $(ARGS)

test: $(VENV)/.dev ## Run the whole test suite (ARGS="-k name" for some of it)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-engine: $(VENV)/.dev ## Run the tests against two real vLLM servers on the CPU (minutes, 7 GB)
	@$(BIN)/python -m pytest -n 0 -m engine --timeout 1800 tests/engine $(ARGS)

check: $(VENV)/.dev ## Formatter, linter, types, import contracts (changes nothing)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## Format and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-overhead: $(VENV)/.dev ## Data plane beside nginx and direct, one core (OUT=file.json)
	@$(BIN)/python -m benchmarks.overhead $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-accounting: $(VENV)/.dev ## Journal to PostgreSQL: events/s and settlement lag (OUT=file.json)
	@$(BIN)/python -m benchmarks.accounting $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-admission: $(VENV)/.dev ## CPU of one admission, in-process and through Redis (OUT=file.json)
	@$(BIN)/python -m benchmarks.admission $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-overload: $(VENV)/.dev ## Ten times the capacity on a simulated engine (OUT=file.json)
	@$(BIN)/python -m benchmarks.overload $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-fleet: $(VENV)/.dev ## Choice of a replica on eight simulated engines (OUT=file.json)
	@$(BIN)/python -m benchmarks.fleet $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-routing: $(VENV)/.dev ## The shipped prompt classifier on the shared judged prompts (OUT=file.json)
	@$(BIN)/python -m benchmarks.routing $(if $(OUT),--out "$(OUT)") $(ARGS)

lock: $(VENV)/.dev ## Write both locks anew from pyproject.toml
	@$(BIN)/python deploy/make_locks.py

clean: ## Remove the virtual environments and caches
	rm -rf "$(VENV)" .venv-engine .venv-engine.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
