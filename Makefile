# Everything a person types. The first target that needs it makes the environment; nothing else has to be installed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
OUTPUT ?= output/demo
STAMP := $(VENV)/.installed
# A variable, because `call` splits its arguments at commas.
EXTRAS := tune,models,dev
LOG := $(VENV)/install.log
# pip $(1): install, print nothing but what it says on failure. Its warnings are many on some machines.
pip = $(BIN)/python -m pip install $(1) >>$(LOG) 2>&1 || { cat $(LOG); exit 1; }

export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: demo test check bench faults soak report results docs dist floors clean

demo: $(STAMP)  ## a real search on digits: the front in the terminal, the path of the report
	@if grep -qs '"phase": *"done"' $(OUTPUT)/events.jsonl; then echo "the search in $(OUTPUT) is finished: its front"; fi
	@$(BIN)/rst-tune run digits --output $(OUTPUT)

test: $(STAMP)  ## all tests; TEST_FLAGS=--last-failed: those that failed last time
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TEST_FLAGS) tests rst_tune

check: $(STAMP)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

report: $(STAMP)  ## the offline page of the latest search
	$(BIN)/rst-tune report

bench: $(STAMP)  ## every measured claim, one after another
	@for bench in experiments/benchmarks/*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

results: $(STAMP)  ## docs/results.md from the kept records; FRESH=1 trains what is missing (hours, resumable)
	$(BIN)/python experiments/results/make.py $(if $(FRESH),--fresh)

faults: $(STAMP)  ## the long form of the fault table: kills real processes for some minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/faults tests/soak tests/tracking/test_server.py -m faults --long -o faulthandler_timeout=0 -q

soak: $(STAMP)  ## random kills of the driver for MINUTES (10), then 10,000 damaged files; what failed is kept
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10)

docs: $(VENV)/.docs  ## the documentation in site/, with every link checked; open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest -q -n 0 tests/docs
	@echo "open site/index.html"

dist: $(STAMP)  ## wheel and sdist, checked, installed in a clean environment and used there; CLEAN=0 is quick
	@tests/install/dist.sh $(BIN)/python

floors: $(STAMP)  ## the tests with the lowest versions of pyproject.toml (12 GB for a while, half an hour)
	@tests/install/floors.sh $(BIN)/python

$(STAMP): pyproject.toml
	@echo "making the environment $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@: >$(LOG)
	@$(call pip,--upgrade pip)
	@echo "installing torch, Ray, Optuna, MLflow and the rest: some minutes ($(LOG) has the details)"
	@$(call pip,-e '.[$(EXTRAS)]')
	@touch $@
	@echo "installed"

$(VENV)/.docs: $(STAMP)
	@echo "installing what the documentation is built with"
	@$(call pip,-e '.[docs]')
	@touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
