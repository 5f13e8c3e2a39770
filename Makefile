# Everything a person types. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
SPEC := pyproject.toml constraints.txt infra/local/noida.txt

.PHONY: help up demo test test-kills chaos soak unit test-agents test-faults check format kafka tools constraints clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 16

up: .venv/.demo ## The whole stack on this machine; Ctrl-C stops it
	$(BIN)/agentworld up

demo: .venv/.demo ## The stack and the quickstart recipe: calls become groups, a batch, rows
	$(BIN)/agentworld demo

test: .venv/.dev tools ## All tests but the kill tests, on the fake, the embedded broker and real Apache Kafka
	$(PYTEST) tests -m 'not chaos' -n $(JOBS) --dist loadfile

test-kills: .venv/.dev tools ## Kill each process under load, on the embedded broker and Apache Kafka
	$(PYTEST) tests -m chaos -n $(JOBS)

chaos: .venv/.dev tools ## Faults under load on Apache Kafka, and an audit of all data; SEED=n repeats a run
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1)

soak: .venv/.dev tools ## The same for MINUTES=n
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

unit: .venv/.dev ## The tests that need no process beside them
	$(PYTEST) tests/unit tests/contract

test-agents: .venv/.dev ## Real agent clients (Codex, Claude Code, …) through the gateway; installs them and Node 24
	$(BIN)/python -m tests.agents

test-faults: .venv/.dev tools ## Faults of engine, clients, broker and gateway under load: nothing answered is lost
	$(BIN)/python -m tests.faults

check: .venv/.dev ## ruff, mypy --strict, import-linter, file sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	$(BIN)/python infra/check_tree.py

format: .venv/.dev ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

kafka: .venv/.demo tools ## Real Apache Kafka in the foreground (Java 17, Maven)
	$(BIN)/python -m infra.kafka

tools: ## Java 17 and Maven, where they are missing
	@infra/install_tools.sh

constraints: .venv/.dev ## Resolve constraints.txt anew
	echo '# Versions that are tested together. Renew with: make constraints' > constraints.txt
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra dashboards --universal \
	  --python-version 3.11 --no-header --no-annotate -q >> constraints.txt

clean: ## Remove the environment and all local data
	rm -rf .venv .agentworld reports build ./*.egg-info

.venv/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "agentworld needs Python 3.11 or newer: make PYTHON=python3.11 …"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "python3-venv is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check 'uv==$(shell sed -n 's/^UV_VERSION=//p' infra/versions.env)'
	@touch $@

.venv/.demo: .venv/.uv $(SPEC)
	@$(BIN)/uv pip install -q -p $(BIN)/python --no-deps --require-hashes -r infra/local/noida.txt
	@$(BIN)/uv pip install -q -p $(BIN)/python -c constraints.txt -e '.[demo]'
	@touch $@

.venv/.dev: .venv/.demo
	@$(BIN)/uv pip install -q -p $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@
