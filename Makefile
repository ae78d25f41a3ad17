# Everything begins here: `make` lists the targets. Each does the set-up that it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps: a step runs again only when what it depends on has changed.
STAMPS := $(VENV)/.stamps
PATHS := contracts services analytics infra tests
# The shop and its tests start hundreds of processes. Without byte code each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup spark up down status demo unit test-unit test test-long test-full coverage test-dr test-dr-full test-hostile test-hostile-short test-compose test-testcontainers test-containers test-cluster test-k8s test-k8s-api check lint types imports contracts k8s format bench bench-against clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/kafka-classes ## make .venv with locked dependencies, download the jars; instant when done
	@echo "Ready: try ./daybook up, or make demo."

spark: $(STAMPS)/spark-classes ## let Spark start twice as fast: store its classes, once (a minute)

up: setup ## start the shop and leave it running
	@./daybook up

down: ## stop the shop; keep its state
	@./daybook down

status: ## show the running processes
	@./daybook status

demo: setup ## guided tour with real data
	@./daybook demo

test-unit: setup ## the tests that need no broker and no database
	@$(BIN)/python -m pytest -n auto tests/unit tests/architecture

unit: test-unit

test: setup spark ## run the tests, in one process per core (eleven minutes on two cores)
	@$(BIN)/python -m pytest -n auto --durations=25 -m "not long and not full"

test-long: setup spark ## end to end, kills, outages, two sites, rights, whole marts (twenty minutes)
	@$(BIN)/python -m pytest -n auto --durations=25 -m "long and not full" tests/integration tests/e2e

test-full: setup spark ## the slowest tests, which no other target runs (three quarters of an hour)
	@$(BIN)/python -m pytest -n auto --durations=25 -m full tests/integration tests/e2e

coverage: setup spark ## run every test and report which lines ran; takes longer
	@$(BIN)/python -m pytest -n auto --cov=contracts --cov=services --cov=infra --cov=analytics --cov-report=term:skip-covered

test-dr: setup ## a loss, the way back and a switchover on two sites, under load (twelve minutes)
	@$(BIN)/python -m pytest tests/dr --ignore=tests/dr/full -s

test-dr-full: setup ## every drill on two sites, and what operators do besides (hours); another seed: DAYBOOK_DRILL_SEED=2
	@DAYBOOK_DRILL_STRICT=1 $(BIN)/python -m pytest tests/dr/test_router.py tests/dr/full -s

test-hostile: setup ## 5,000 hostile connections, and 100,000 bad inputs (ten minutes)
	@$(BIN)/python -m pytest tests/hostile -s

test-hostile-short: setup ## the same with 10,000 bad inputs (four minutes)
	@DAYBOOK_HOSTILE_INPUTS=10000 $(BIN)/python -m pytest tests/hostile -s

test-compose: setup ## the shop in containers, and six failures; needs a Docker engine
	@$(BIN)/python -m pytest tests/containers --ignore=tests/containers/full -s

# The stores are removed by the tests; the image that testcontainers would tidy up with need not be there.
test-testcontainers: setup ## kernel, projection and replay, with stores in containers; needs a Docker engine
	@TESTCONTAINERS_RYUK_DISABLED=true $(BIN)/python -m pytest --stack containers -n 2 \
		tests/integration/kernel/test_ownership.py tests/integration/kernel/test_aborts.py \
		tests/integration/kernel/test_restoring.py tests/integration/projection/test_live.py \
		tests/integration/projection/test_guards.py tests/integration/projection/test_kills.py \
		tests/integration/projection/test_replay_into.py

test-containers: setup ## the same, each container and profile, and the integration tests on containers (hours)
	@$(BIN)/python -m pytest tests/containers -s
	@$(BIN)/python -m pytest --stack containers tests/integration

test-cluster: setup ## what three brokers promise, all drills (about half an hour)
	@$(BIN)/python -m pytest tests/cluster -s

test-k8s-api: $(STAMPS)/locked ## apply the manifests to the API server of KUBECONFIG, as dry runs (half a minute)
	@$(BIN)/python -m pytest tests/k8s/test_api.py tests/unit/k8s/test_manifests.py

test-k8s: $(STAMPS)/locked ## the same, the shop on a real node, and drains of simulated zones (eight minutes)
	@$(BIN)/python -m pytest tests/k8s -s

check: lint types imports contracts k8s ## all static checks

lint: $(STAMPS)/locked ## ruff: lint and format
	@$(BIN)/ruff check $(PATHS)
	@$(BIN)/ruff format --check $(PATHS)

types: $(STAMPS)/locked ## mypy --strict
	@$(BIN)/mypy

imports: $(STAMPS)/locked ## check what each room imports against its allowlist
	@$(BIN)/python -m pytest -q tests/architecture/test_imports.py

contracts: $(STAMPS)/locked ## schemas, lock and generated classes agree
	@./daybook contracts check

k8s: $(STAMPS)/locked ## render the manifests of Kubernetes and check them, where kubectl or kustomize is there
	@$(BIN)/python -m pytest -q -n 0 tests/unit/k8s/test_manifests.py

format: $(STAMPS)/locked ## let ruff fix what it can; remove results from notebooks
	@$(BIN)/jupyter nbconvert --log-level WARN --clear-output --inplace analytics/notebooks/*.ipynb
	@$(BIN)/ruff check --fix $(PATHS)
	@$(BIN)/ruff format $(PATHS)

bench: setup spark ## measure speed beside peers (up to an hour; one: make bench P=P1); CHECK=1: compare with the floors
	@$(BIN)/python -m tests.bench $(P) $(if $(CHECK),--check)

bench-against: setup spark ## measure speed beside an older commit, in turns: make bench-against COMMIT=main~1 P="P1 P2"
	@$(BIN)/python -m tests.bench.against $(COMMIT) $(or $(P),P1 P2 P3 P4)

clean: ## stop the shop, remove its state and what the tools left
	@if [ -x $(BIN)/python ]; then ./daybook clean --yes; fi
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage build
	@find $(PATHS) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## also remove .venv
	@rm -rf $(VENV)

$(STAMPS)/venv:
	@infra/setup/make-venv $(PYTHON) $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/uv: $(STAMPS)/venv infra/setup/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r infra/setup/uv.lock
	@touch $@

$(STAMPS)/locked: $(STAMPS)/uv requirements.lock
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock infra/setup/uv.lock
	@touch $@

$(STAMPS)/jars: $(STAMPS)/locked infra/jars.lock
	@$(BIN)/python -m infra.stack.embedded.java
	@touch $@

$(STAMPS)/kafka-classes: $(STAMPS)/jars
	@$(BIN)/python -m infra.stack.embedded.class_archives kafka
	@touch $@

$(STAMPS)/spark-classes: $(STAMPS)/jars
	@$(BIN)/python -m infra.stack.embedded.class_archives spark
	@touch $@
