# rollstream: `make help` lists what there is.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
# Arithmetic libraries would start a thread for each core in each process: slower.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.PHONY: help setup browser lint test demo bench chaos soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## make .venv with pinned dependencies (5 GB: torch), and a browser for tests
	@.ci/browser

browser: .venv/ready ## chromium for the tests of the dashboard, by apt (root) or Playwright
	@.ci/browser --needed

.venv/ready: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: $(PYTHON) was not found"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: PYTHON=/path/to/python3.11 make setup"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.9
	@# Compiled once here, and not by each process that starts.
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c requirements.lock -e '.[learner,archive,envs,images,video,dev]'
	@touch $@

lint: setup ## ruff (rules, format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## lint, then all tests, those on the real broker included
	$(BIN)/pytest

demo: setup ## an agent learns CartPole through Kafka; Ctrl-C stops, again resumes
	$(BIN)/rollstream run infra/experiments/cartpole-dqn.yaml

bench: setup ## the same work by us and by other libraries; QUICK=1: a first impression
	$(BIN)/rollstream bench beside $(if $(QUICK),--quick,--page docs/performance.md)

chaos: setup ## kill and freeze roles and brokers while work goes on
	ROLLSTREAM_CHAOS_REPORT=. $(BIN)/pytest -n 0 -m "chaos or heavy"

soak: setup ## faults at random for MINUTES (60), then all checks; Ctrl-C checks what there is
	ROLLSTREAM_CHAOS_REPORT=. $(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

clean: ## remove the virtual environment and caches (not the data directory)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
