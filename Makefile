# From a fresh checkout, with make and Python >= 3.11: `make up` or `make test`.

# The first Python that runs and is new enough: a version manager's shim may exist and yet not run.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $$python && break; done)

# Django 6 wants a newer one than we do: the first there is, also where pyenv keeps them.
NEWER := import sys; sys.exit(sys.version_info < (3, 12))
PYTHON_DJANGO6 ?= $(shell for python in python3.14 python3.13 python3.12 python3 \
	$(wildcard $(HOME)/.pyenv/versions/3.*/bin/python3); do \
	$$python -c '$(NEWER)' >/dev/null 2>&1 && echo $$python && break; done)

VENV := .venv
DJANGO6_VENV := .venv-django6
DOCS_VENV := .venv-docs
LINT_VENV := .venv-lint
BIN := $(VENV)/bin
# Processes that run tests: most tests wait more than they compute, for leases, graces and polls.
TEST_PROCESSES ?= 4
PYTEST_ARGS ?= -n $(TEST_PROCESSES) --dist worksteal

# uv, where there is one, must use this Python and this machine's certificates.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# $(call install,VENV,ARGUMENTS): by uv if it is there and reaches the packages, by pip otherwise.
install = { command -v uv >/dev/null 2>&1 && uv pip install --quiet --python $(1)/bin/python $(2); } \
	|| $(1)/bin/python -m pip install -qq $(2)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help up install test browser django6 django-suite celery-suite check format fuzz simulate chaos mutants bench dashboard types reference \
	docs lint-deploy package requirements changelog clean crashes soak matrix every

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

up: $(VENV)/run.stamp ## Install, and run everything on SQLite with the example jobs
	@$(MAKE) --no-print-directory dashboard || echo 'going on without it: the page says how to build it'
	$(BIN)/rowlock --app examples.quickstart:app up

install: $(VENV)/dev.stamp ## Install everything for development into .venv

test: $(VENV)/dev.stamp dashboard browser ## Install, and run every test on SQLite and a throw-away PostgreSQL
	@echo "1/4 environment: $$($(BIN)/python -V) in $(VENV), and the dashboard, are ready"
	@server=$$($(BIN)/python -m tests.cell) && echo "2/4 PostgreSQL: $$server"
	@echo '3/4 checks: lint and format (`make check` looks at the types, too)'
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@echo '4/4 tests: in $(TEST_PROCESSES) processes; each line ends with the percentage that is done'
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

# The tests of the dashboard need a browser. Debian's is installed where that is possible.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo 'installing Chromium, in which the dashboard is tested' && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else \
		echo 'the dashboard is tested in Chromium, and there is none: apt-get install chromium' >&2; exit 1; \
	fi

# The other tests run on Django 5.2, which is the newest for Python 3.11.
django6: $(VENV)/dev.stamp $(if $(PYTHON_DJANGO6),$(DJANGO6_VENV)/django6.stamp) ## Try Django 6 as well, where there is a Python >= 3.12
ifeq ($(PYTHON_DJANGO6),)
	@echo 'Django 6 was NOT tried: it needs Python >= 3.12 (make PYTHON_DJANGO6=/path/to/python3 django6)'
else
	ROWLOCK_TEST_DJANGO_PYTHON=$(CURDIR)/$(DJANGO6_VENV)/bin/python \
		$(BIN)/python -m pytest $(PYTEST_ARGS) tests/contrib/test_django.py
endif

# Outside of CI: it downloads Django's source package.
django-suite: $(VENV)/dev.stamp $(if $(PYTHON_DJANGO6),$(DJANGO6_VENV)/django6.stamp) ## Run Django's own tests of its tasks against rowlock's backend
	$(BIN)/python -m tests.contrib.upstream
ifneq ($(PYTHON_DJANGO6),)
	$(DJANGO6_VENV)/bin/python -m tests.contrib.upstream
endif

# Outside of CI: it downloads Celery's source package, and takes a quarter of an hour.
celery-suite: $(VENV)/dev.stamp ## Run Celery's own tests of canvases against the shim
	$(BIN)/python -m tests.contrib.upstream.canvas

# --verifytypes asks the first python in PATH where the package is, whatever it is told otherwise.
check: $(VENV)/dev.stamp ## Lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" basedpyright --verifytypes rowlock --ignoreexternal
	$(BIN)/python dashboard/build.py --check

format: $(VENV)/dev.stamp ## Format, and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/python dashboard/build.py --format

FUZZ_EXAMPLES ?= 800
FUZZ_REQUESTS ?= 10000
fuzz: $(VENV)/dev.stamp ## Try the HTTP API with thousands of strange requests, in a few minutes
	ROWLOCK_SCHEMA_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest $(PYTEST_ARGS) --every-combination tests/server/test_schema.py
	$(BIN)/python -m benchmarks.malformed $(FUZZ_REQUESTS)

# SIMULATE_ARGS=--help shows what else: one seed with its journal, a planted bug, more processes.
SIMULATE_ARGS ?= --seeds 1000 --processes 2
simulate: $(VENV)/dev.stamp ## Simulate days of workers while everything goes wrong, in some minutes
	$(BIN)/python -m tests.simulation $(SIMULATE_ARGS)

# CHAOS_ARGS="--jobs 10000 --kills 20" is a short one; `rowlock chaos --help` shows what else.
CHAOS_ARGS ?= --jobs 100000 --kills 100 --pauses 20 --crashes 10 --swallows 100 --legs 10
chaos: $(VENV)/dev.stamp ## Break a million jobs' workers and databases, on both stores, in hours
	$(BIN)/rowlock chaos --store sqlite $(CHAOS_ARGS)
	$(BIN)/rowlock chaos --store postgres $(CHAOS_ARGS)

# MUTANTS_ARGS=--help shows how to choose one.
mutants: $(VENV)/dev.stamp ## Plant bugs that a short run of chaos must find, in an hour
	$(BIN)/python -m tests.chaos $(MUTANTS_ARGS)

# In memory where there is such a place: thousands of small files are made and removed.
CRASHES_TMPDIR ?= $(wildcard /dev/shm)
crashes: $(VENV)/dev.stamp ## Let a SQLite queue fail at every write and sync, in a quarter of an hour
	$(if $(CRASHES_TMPDIR),TMPDIR=$(CRASHES_TMPDIR)) $(BIN)/python -m benchmarks.crashes $(CRASHES_ARGS)

# BENCH_ARGS=--help shows what else it can measure, and how long.
bench: $(VENV)/dev.stamp ## Measure against the limits of this machine, in a few minutes
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# SOAK_ARGS="sqlite --minutes 5" is a shorter one, of one store.
soak: $(VENV)/dev.stamp ## Run 1,000 jobs a second for half an hour on each store: does anything grow?
	$(BIN)/python -m benchmarks.soak $(SOAK_ARGS)

every: $(VENV)/dev.stamp dashboard ## Run every test with each value on each store, blocking and async
	$(BIN)/python -m pytest $(PYTEST_ARGS) --every-combination

# MATRIX_ARGS="pgbouncer -- tests/store" is one cell, and some of the tests.
matrix: $(VENV)/dev.stamp ## Run the tests on every PostgreSQL, pooler, role and isolation level that is here
	$(BIN)/python -m tests.matrix $(MATRIX_ARGS)

# Nothing is done where the files are of these sources. Where the system has no Node that is new
# enough, a Python package brings one.
dashboard: $(VENV)/run.stamp ## Build the dashboard into the package
	@$(BIN)/python dashboard/build.py --look \
		|| { $(call install,$(VENV),--require-hashes -r requirements/node.txt); }
	@$(BIN)/python dashboard/build.py

types: $(VENV)/dev.stamp ## Write the dashboard's types of the API anew
	$(BIN)/python dashboard/schema_types.py

reference: $(VENV)/dev.stamp ## Write the generated sections of the reference anew
	$(BIN)/python -m tests.docs.reference

.PHONY: pictures
# PICTURES=diagrams takes a second, `recording` half a minute, `screenshots` six minutes.
pictures: $(VENV)/dev.stamp dashboard browser ## Make the pictures of the documentation anew
	$(BIN)/python -m tests.docs.pictures $(PICTURES)

docs: $(DOCS_VENV)/docs.stamp ## Build the documentation into site/
	$(DOCS_VENV)/bin/zensical build --clean

# Left out are three rules of checkov. 15 and 43: which image, and when to pull it, is the reader's
# choice. 35: the URL comes in the environment, since libpq refuses a file that its group may read.
lint-deploy: $(LINT_VENV)/lint.stamp ## Lint the Dockerfile, compose file and manifests in deploy/
	$(LINT_VENV)/bin/hadolint deploy/Dockerfile
	$(LINT_VENV)/bin/kubernetes-validate --strict deploy/kubernetes.yaml
	$(LINT_VENV)/bin/compose-lint deploy/compose.yaml
	$(LINT_VENV)/bin/checkov --directory deploy --framework dockerfile kubernetes --compact --quiet \
		--skip-download --skip-check CKV_K8S_15,CKV_K8S_35,CKV_K8S_43

# Every Python that we support and that is at hand, the newest first, also where pyenv keeps them.
PYTHONS ?= $(shell for minor in 14 13 12 11; do for python in python3.$$minor \
	$(HOME)/.pyenv/versions/3.$$minor.*/bin/python3; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[1] != '$$minor')' >/dev/null 2>&1 \
	&& echo $$python && break; done; done)

package: $(VENV)/run.stamp dashboard ## Build the wheel, install it into empty environments, and do what a new user does
	rm -rf dist
	$(BIN)/python -m hatchling build
	@ls -l dist | awk 'NR > 1 { print $$5, $$9 }'
	@for python in $(PYTHONS); do \
		rm -rf .venv-package && $$python -m venv .venv-package || exit 1; \
		for extras in "core " "server [server]" "postgres [postgres,server]"; do \
			$(call install,.venv-package,"$$(echo dist/*.whl)$${extras#* }") \
			&& .venv-package/bin/python -P tests/package/smoke.py README.md $${extras% *} || exit 1; \
		done; \
	done
	rm -rf .venv-package

changelog: ## Collect the fragments in changelog.d/ into CHANGELOG.md, and remove them
	$(PYTHON) changelog.d/collect.py $(CHANGELOG_ARGS)

requirements: ## Resolve requirements/*.in anew into pinned files with hashes (needs uv)
	cd requirements && for name in build run node dev docs lint; do \
		uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 \
			--no-annotate --no-header --no-emit-index-url $$name.in --output-file $$name.txt || exit 1; \
	done
	cd requirements && uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.12 \
		--no-annotate --no-header --no-emit-index-url django6.in --output-file django6.txt

clean: ## Remove everything that make made
	rm -rf dashboard/node_modules dashboard/.build dashboard/.unit src/rowlock/dashboard
	rm -rf $(VENV) $(DJANGO6_VENV) $(DOCS_VENV) $(LINT_VENV) .venv-package site dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo 'rowlock needs Python >= 3.11: make PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(DJANGO6_VENV)/pyvenv.cfg:
	$(PYTHON_DJANGO6) -m venv --clear $(DJANGO6_VENV)

$(DOCS_VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo 'rowlock needs Python >= 3.11: make PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(DOCS_VENV)

$(LINT_VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo 'rowlock needs Python >= 3.11: make PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(LINT_VENV)

# The checkout itself is installed last, editable, with the build backend that is pinned as well.
$(VENV)/run.stamp: requirements/run.txt requirements/build.txt pyproject.toml | $(VENV)/pyvenv.cfg
	$(call install,$(VENV),--require-hashes -r requirements/run.txt -r requirements/build.txt)
	$(call install,$(VENV),--no-deps --no-build-isolation --editable .)
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt $(VENV)/run.stamp
	$(call install,$(VENV),--require-hashes -r requirements/dev.txt)
	@touch $@

$(DJANGO6_VENV)/django6.stamp: requirements/django6.txt pyproject.toml | $(DJANGO6_VENV)/pyvenv.cfg
	$(call install,$(DJANGO6_VENV),--require-hashes -r requirements/django6.txt)
	$(call install,$(DJANGO6_VENV),--no-deps --no-build-isolation --editable .)
	@touch $@

$(DOCS_VENV)/docs.stamp: requirements/docs.txt | $(DOCS_VENV)/pyvenv.cfg
	$(call install,$(DOCS_VENV),--require-hashes -r requirements/docs.txt)
	@touch $@

$(LINT_VENV)/lint.stamp: requirements/lint.txt | $(LINT_VENV)/pyvenv.cfg
	$(call install,$(LINT_VENV),--require-hashes -r requirements/lint.txt)
	@touch $@
