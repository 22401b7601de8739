# Every target sets up what it needs in .venv; CI runs these same targets.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

.PHONY: demo report frontier test test-slow attacks lint types imports docs docs-serve bench check clean help

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

test: .venv/dev  ## all tests that fit into CI
	$(BIN)/pytest -n $(JOBS) -m 'not slow and not gpu'

test-slow: .venv/dev  ## the tests that take minutes, too
	$(BIN)/pytest -n $(JOBS) -m 'not gpu'

attacks: .venv/dev  ## 2,000 attacks with real refits; writes the committed result
	$(BIN)/python benchmarks/attacks.py --attacks 2000 --out benchmarks/results/attacks.json

lint: .venv/dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev  ## mypy, strict
	$(BIN)/mypy

imports: .venv/dev  ## imports point down only
	$(BIN)/lint-imports

report: .venv/dev  ## rebuild the reproduction page from the committed results; it must not change
	$(BIN)/poisonproof reproduce --report
	git diff --exit-code -- docs/reproduction.md docs/assets/reproduction

frontier: .venv/dev  ## redraw docs/beyond/frontier.md from the committed results
	$(BIN)/poisonproof compare --results experiments/results --results experiments/frontier --out docs/beyond

docs: .venv/dev  ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/dev  ## read the documentation while writing it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: .venv/dev  ## the CPU benchmarks; each prints a ratio against its reference
	for name in certify_votes content_hash ensemble_overhead; do \
		$(BIN)/python benchmarks/$$name.py --out benchmarks/results/$$name.json || exit 1; done

check: lint types imports test docs report  ## everything that CI runs

clean:  ## remove what the targets made
	rm -rf .venv site demo-output .pytest_cache .mypy_cache .ruff_cache
