# Every target does its own set-up: on a machine with Python >= 3.10, make and g++ nothing else is typed first.
# PYTHON=python3.12 chooses the interpreter; ARGS="..." goes to pytest or to the benchmarks.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ROOT   := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup tour lab test test-browser lint format bench bench-gpu clean

help:  ## Say what there is to type
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{ printf "%-18s %s\n", $$1, $$2 }'

setup: $(READY)  ## Make .venv with everything in it (once, and again when pyproject.toml or constraints.txt change)

$(READY): pyproject.toml constraints.txt tools/setup.py
	@$(PYTHON) tools/setup.py $(VENV)

tour: $(READY)  ## Run the tour notebook here, with a summary; writes out/01_tour.html
	@$(BIN)/python tools/tour.py

lab: $(READY)  ## Open the tour in JupyterLab
	@$(BIN)/python -m jupyter lab $(ROOT) $(ARGS) notebooks/01_tour.ipynb

test: ARGS ?= -m "not slow"
test: $(READY)  ## Run the tests; ARGS="" runs the slow ones too, as CI does
	@$(BIN)/python -m pytest $(ARGS)

test-browser: $(READY)  ## Drive JupyterLab in Chromium; screenshots go to out/browser (CI runs this as part of the tests)
	@$(BIN)/python -m pytest -m browser $(ARGS)

lint: $(READY)  ## Check style, form and types
	@status=0; for each in "ruff check ." "ruff format --check --quiet ." mypy; do \
	  $(BIN)/python -m $$each || status=1; done; exit $$status

format: $(READY)  ## Put the sources into their standard form
	@$(BIN)/python -m ruff check --fix --exit-zero --quiet .
	@$(BIN)/python -m ruff format .

bench: $(READY)  ## Measure the figures in the README; writes benchmarks/results
	@status=0; for each in call_overhead edit_latency extension_latency inspect_latency card_speed trust_speed \
	  tune_speed bench_trust save_speed; do $(BIN)/python -m benchmarks.$$each $(ARGS) || status=1; done; exit $$status

bench-gpu: $(READY)  ## The same on a machine with a GPU
	@status=0; for each in gpu_latency gpu_speed "tune_speed --gpu" "bench_trust --gpu" gpu_tests; do \
	  $(BIN)/python -m benchmarks.$$each $(ARGS) || status=1; done; exit $$status

clean:  ## Remove what the other targets made
	rm -rf $(VENV) out build *.egg-info .pytest_cache .ruff_cache .mypy_cache
