# Everything a person types. The first target that needs it makes the environment; nothing else has to be installed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
OUTPUT ?= output/demo
STAMP := $(VENV)/.installed

export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: demo test check bench faults soak report results clean

demo: $(STAMP)  ## a real search on digits: the front in the terminal, the path of the report
	$(BIN)/rst-tune run digits --output $(OUTPUT)

test: $(STAMP)  ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile tests rst_tune

check: $(STAMP)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

report: $(STAMP)  ## the offline page of the latest search
	$(BIN)/rst-tune report

bench: $(STAMP)  ## every measured claim, one after another
	@for bench in experiments/benchmarks/*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

results: $(STAMP)  ## docs/results.md from the kept records; FRESH=1 trains them again (hours, resumable)
	$(BIN)/python experiments/results/make.py $(if $(FRESH),--fresh)

faults: $(STAMP)  ## the long form of the fault table: kills real processes for some minutes
	$(BIN)/python -m pytest tests/faults tests/soak tests/tracking/test_server.py -m faults --long -q

soak: $(STAMP)  ## random kills of the driver for MINUTES (10), then 10,000 damaged files; what failed is kept
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[tune,models,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
