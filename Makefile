# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS_TEST := training,table,molecules,dicom,vision,chemprop,text,estimators,lightning,tune,bench,docs,dev
ONNXRUNTIME_WEB := 1.30.0
LIBAUC := 2.0.1

.PHONY: demo test check gpu coverage lint types unit docs clean

demo: $(VENV)/.demo  ## Train the paper's methods on handwritten digits and compare them.
	$(BIN)/mmb compare --data digits --methods ce,auc,auc-ct,pauc --seeds 3 --output runs/demo
	$(BIN)/mmb report runs/demo --output runs/demo/report.html
	@echo "Open the page that compares them in a browser: file://$(CURDIR)/runs/demo/report.html"

test: lint types unit  ## Lint, types and the whole test suite, which also builds the documentation.

check: lint types  ## Lint, types and the tests of what has changed: for every few minutes of work.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $$($(BIN)/python tests/changed.py)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

unit: $(VENV)/.test $(VENV)/.web  # one thread a worker: the tests are small, and the workers are many
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

coverage: $(VENV)/.test $(VENV)/.web  ## Lines and branches of src that the tests run, in htmlcov/.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --cov=mmb --cov-branch --cov-report=html --cov-report=term:skip-covered

gpu: $(VENV)/.test  ## On a machine with a GPU: the tests that need it, and speeds, in ten minutes; logs in runs/gpu.
	$(BIN)/python benchmarks/on_gpu.py --output runs/gpu

docs: $(VENV)/.test  ## The documentation, in site/; a broken link or formula fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[training]"
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS_TEST)]"
	$(BIN)/python -m pip install --quiet --no-deps libauc==$(LIBAUC) || echo "no LibAUC: gradients are not compared with its"
	touch $@

$(VENV)/.web: $(BIN)/python Makefile  # exported models are tested in a browser; without npm, those tests skip
	npm install --silent --no-audit --no-fund --prefix $(VENV)/web onnxruntime-web@$(ONNXRUNTIME_WEB) && touch $@ \
		|| echo "no onnxruntime-web: exported models are not tested in a browser"

clean:
	rm -rf $(VENV) build dist htmlcov runs site .coverage .mypy_cache .ruff_cache .pytest_cache
