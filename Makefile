# Every target sets up what it needs in .venv; CI runs these same targets.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

# The laboratory imports the product; nothing needs to be installed for it.
LAB := PYTHONPATH=research $(BIN)/python -m poisonproof_research

.PHONY: demo test test-research test-slow attacks lint types imports results docs docs-serve bench \
	check clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/user: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ .venv/user

demo: .venv/user  ## certify scikit-learn's digits against poisoning, no download
	$(BIN)/poisonproof demo --out demo-output

test: .venv/dev  ## the product's tests that fit into CI
	$(BIN)/pytest -n $(JOBS) -m 'not slow and not gpu'

test-research: .venv/dev  ## the laboratory's tests that fit into CI
	cd research && $(CURDIR)/$(BIN)/pytest -n $(JOBS) -m 'not slow and not gpu'

test-slow: .venv/dev  ## the tests of both that take minutes, too
	$(BIN)/pytest -n $(JOBS) -m 'not gpu'
	cd research && $(CURDIR)/$(BIN)/pytest -n $(JOBS) -m 'not gpu'

attacks: .venv/dev  ## 2,000 attacks with real refits on rows, and on rows and features; writes the committed results
	PYTHONPATH=. $(BIN)/python benchmarks/attacks.py --attacks 2000 --out benchmarks/results/attacks.json
	PYTHONPATH=. $(BIN)/python -m tests.guarantees.grid_campaign --attacks 2000 --out benchmarks/results/grid_attacks.json

lint: .venv/dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev  ## mypy, strict, product and laboratory
	$(BIN)/mypy

imports: .venv/dev  ## imports point down only
	$(BIN)/lint-imports

results: .venv/dev  ## rebuild the laboratory's pages from the committed results; nothing may change
	$(LAB) reproduce --report
	$(LAB) frontier
	git diff --exit-code -- research/results

docs: .venv/dev  ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/dev  ## read the documentation while writing it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: .venv/dev  ## the CPU benchmarks; each prints a ratio against its reference
	for name in certify_votes content_hash ensemble_overhead; do \
		$(BIN)/python benchmarks/$$name.py --out benchmarks/results/$$name.json || exit 1; done

check: lint types imports docs results test test-research  ## everything that CI runs

clean:  ## remove what the targets made
	rm -rf .venv site demo-output .pytest_cache .mypy_cache .ruff_cache
