# Everything a newcomer runs. Each target sets up first; that takes under a second when nothing changed.
#   make PYTHON=python3.12 …   another Python          make test ARGS="-k broker"   arguments for pytest (or the bench)
.DEFAULT_GOAL := help
.PHONY: help setup demo quick test deep check bench lock jar clean
PYTHON ?=
ARGS ?=
# The tests of the command in one process, those of the engine in another, which both end with; in the order found.
PARALLEL := -n 2 --no-loadscope-reorder
BIN := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## virtual environment from the lock file, Java, jars
	@PYTHON="$(PYTHON)" scripts/setup

demo: setup ## orders from Kafka through bronze, silver and gold, live, and the proof (ARGS=fraud: another example)
	@$(BIN)/penstock demo $(ARGS)

quick: setup ## the tests that need no JVM and no broker
	@$(BIN)/pytest -n 2 tests/unit $(ARGS)

test: setup ## every test
	@$(BIN)/pytest $(PARALLEL) $(ARGS)

deep: setup ## more tests of the same things; takes hours
	@$(BIN)/pytest $(PARALLEL) -m deep $(ARGS)

check: setup ## format, lint, types, layers: seconds
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: setup ## speed beside hand-written jobs, on a real broker
	@$(BIN)/python -m bench $(ARGS)

lock: setup ## renew requirements.lock from pyproject.toml (ARGS=--upgrade: newest versions)
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev $(ARGS) \
	    --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml >/dev/null
	@! grep -n '://' requirements.lock || { echo "requirements.lock must not name a registry" >&2; exit 1; }

jar: setup ## compile the Java classes again (needs JDK 17)
	@$(BIN)/python scripts/build_jar.py

clean: ## remove the virtual environment and all that is built
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
