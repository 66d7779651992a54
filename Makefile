# One command each: make demo, make test, make test-slow, make test-lowest, make smoke, make lint,
# make docs, make clean.
# Everything runs in .venv, made on first use from constraints.txt with $(PYTHON) and pip alone.
PYTHON ?= python3
VENV ?= .venv
LOWEST ?= .venv-lowest
WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One thread a process: two threads on small matrices can be far slower than one.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Real data lies outside the repository; tests that need it skip where it is absent.
ifneq ($(wildcard ../shared/data),)
export BO_STREAM_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo docs test test-slow test-lowest smoke lint format clean venv

demo: $(STAMP)
	$(BIN)/python -m experiments.comparison experiments/configs/demo.toml

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# The suite on the lowest versions allowed, in an environment of its own; of Python 3.11. Without
# Ax, which asks for a newer BoTorch than bo_stream does.
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal

# The site, into site/; MkDocs' advice on other programs is left out.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(STAMP)
	$(BIN)/mkdocs build --strict --quiet

# Every study, configuration and benchmark for seconds each.
smoke: $(STAMP)
	$(BIN)/python -m experiments.smoke --workers $(WORKERS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

venv: $(STAMP)

.venv: $(STAMP)

# torch first, so that nothing else decides which build is taken.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e ".[all,dev,docs]"
	touch $@

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -c constraints-lowest.txt torch
	$(LOWEST)/bin/python -m pip install -c constraints-lowest.txt -e ".[most,test]"
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build dist site *.egg-info results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
