# Every target needs only Python (>= 3.11, with venv) and make: uv comes from the package index into .uv/.
# python3, or that of the system where python3 is a build without profile-guided optimization (pyenv's, unless asked for): with such a
# one tests take a quarter less processor time, and an append a sixth.
SUITABLE := import ensurepip, sys, sysconfig, venv; a = sysconfig.get_config_var("CONFIG_ARGS") or ""; \
	sys.exit(sys.version_info < (3, 11) or not ("--enable-optimizations" in a or sys.base_prefix == "/usr"))
ifndef PYTHON
PYTHON := $(shell for python in python3 /usr/bin/python3; do $$python -c '$(SUITABLE)' 2>&- && echo $$python && exit; done; echo python3)
endif
UV := .uv/bin/uv
BIN := .venv/bin
MEMBERS := libs/protocol libs/cluster libs/admin libs/runtime libs/testkit services/storage services/server client tools operator spark-on-k8s
EDITABLE := $(foreach m,$(MEMBERS),-e $(m))
STAMP := .venv/.stamp

.PHONY: helm setup fmt check test unit simulation integration test-long unit-spark-oldest types-as-user docs wheels release-check interpreters images _engine e2e e2e-long demo demo-spark bench soak sim mutants mutants-unit nemesis fuzz coverage lock clean

setup: $(STAMP)

$(UV):
	$(PYTHON) -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

# Compiled here, because Python itself does not everywhere (PYTHONDONTWRITEBYTECODE): half a second per process start.
$(STAMP): requirements/dev.txt $(foreach m,$(MEMBERS),$(m)/pyproject.toml) client/src/pytest_waltz.py | $(UV)
	test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(BIN)/python requirements/dev.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python $(EDITABLE)
	$(BIN)/python -m compileall -q $(MEMBERS:%=%/src) bench examples/flights
	touch $(STAMP)

fmt: setup
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 --dist loadfile tests/repo

# The tests of a change, in minutes: unit tests, simulated clusters, real processes. One member alone, in seconds:
# make unit MEMBER=services/server. What is left out carries the mark "long", and is run by make test-long.
test: unit simulation integration

# Slow files first, so that neither worker is left with one at the end.
PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --durations=10 --durations-min=1
# What pytest has compiled is kept, also where Python should not do so: 17 of the 25 seconds in which each of its workers finds the tests.
export PYTHONDONTWRITEBYTECODE :=
MEMBER ?= operator spark-on-k8s services client libs tools tests/interop tests/unit_mutants tests/e2e tests/examples tests/packages
unit: setup
	$(PYTEST) -n 3 -m "not long" $(MEMBER)

simulation: setup
	$(PYTEST) -m "not long" tests/sim tests/fuzz tests/second_opinion

integration: setup
	$(PYTEST) -m "not long" tests/integration

# The rest: more seeds, every write of the operator killed, Spark under kills, wheels on every Python that can be had, each page of the
# documents, faults for a minute. What mostly waits for processes gets more workers than there are cores.
test-long: setup unit-spark-oldest types-as-user interpreters docs
	$(PYTEST) -n 4 -m long $(MEMBER)
	$(PYTEST) -m long tests/sim
	$(PYTEST) -n 3 -m long tests/integration

# The unit tests of the Spark source on the oldest PySpark that is supported, in an environment of its own: that of development, but
# for PySpark.
OLDEST_BIN := .venv-spark-oldest/bin
OLDEST_STAMP := .venv-spark-oldest/.stamp
unit-spark-oldest: setup $(OLDEST_STAMP)
	$(OLDEST_BIN)/pytest -q -n 2 --dist loadfile -m "not long or every_spark" spark-on-k8s

$(OLDEST_STAMP): requirements/dev.txt requirements/spark-oldest.txt $(foreach m,$(MEMBERS),$(m)/pyproject.toml) | $(UV)
	test -x $(OLDEST_BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv-spark-oldest
	$(UV) pip sync --quiet --require-hashes --python $(OLDEST_BIN)/python requirements/dev.txt
	$(UV) pip install --quiet --compile-bytecode --no-deps --require-hashes --python $(OLDEST_BIN)/python -r requirements/spark-oldest.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --python $(OLDEST_BIN)/python $(EDITABLE)
	touch $(OLDEST_STAMP)

# All pages and the API reference as one site, build/site/index.html; a link that leads nowhere fails. MkDocs has an environment of its
# own, and reads our sources without importing them. (With --quiet it would count no warnings, and so pass.)
DOCS_BIN := .venv-docs/bin
DOCS_STAMP := .venv-docs/.stamp
docs: $(DOCS_STAMP)
	$(DOCS_BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

$(DOCS_STAMP): requirements/docs.txt | $(UV)
	test -x $(DOCS_BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv-docs
	$(UV) pip sync --quiet --compile-bytecode --require-hashes --python $(DOCS_BIN)/python requirements/docs.txt
	touch $(DOCS_STAMP)

# Wheels and sdists of every member that is shipped, and the archive for Spark's --py-files, in dist/. Their tools have an
# environment of their own, so that nothing is downloaded once it is there.
BUILD_BIN := .venv-build/bin
BUILD_STAMP := .venv-build/.stamp
wheels: $(BUILD_STAMP)
	$(BUILD_BIN)/python -m release.wheels dist

# Do version, CHANGELOG, images and wheels agree? CONTRIBUTING.md, "How a release is made".
release-check: wheels
	$(BUILD_BIN)/python -m release.check dist

$(BUILD_STAMP): requirements/build.txt requirements/pyfiles.txt | $(UV)
	test -x $(BUILD_BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv-build
	$(UV) pip sync --quiet --require-hashes --python $(BUILD_BIN)/python requirements/build.txt requirements/pyfiles.txt
	touch $(BUILD_STAMP)

# Environments with the pinned packages on newer Pythons, for the tests of the wheels: those that are on this machine or that uv can
# install. What cannot be had is named and left out.
PYTHONS ?= 3.12 3.13 3.14
interpreters: $(UV)
	@for version in $(PYTHONS); do $(MAKE) --no-print-directory .venv-$$version/.stamp || echo "no Python $$version here: left out"; done

.venv-3.%/.stamp: requirements/dev.txt | $(UV)
	@for python in python3.$* $(HOME)/.pyenv/versions/3.$*.*/bin/python 3.$*; do \
		test -x .venv-3.$*/bin/python || $(UV) venv --quiet --python $$python .venv-3.$* 2>/dev/null || true; \
	done
	$(UV) pip sync --quiet --require-hashes --python .venv-3.$*/bin/python requirements/dev.txt
	touch $@

# The client as its users type-check it: its wheel in an environment of its own, with mypy and pyright (basedpyright, whose wheels
# bring the program that it runs on).
TYPES_BIN := .venv-types/bin
types-as-user: setup wheels
	test -x $(TYPES_BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv-types
	$(UV) pip sync --quiet --require-hashes --python $(TYPES_BIN)/python requirements/types.txt
	$(UV) pip install --quiet --no-deps --python $(TYPES_BIN)/python $(foreach name,protocol cluster client,dist/waltz_$(name)-*.whl)
	$(BIN)/pytest -q tests/user_types

# Container images, with docker or buildah, whichever is there. The bases can be chosen: any image with python3 (and venv), and
# any with java, as long as they are of one kind each: PYTHON_BASE_IMAGE=... JAVA_BASE_IMAGE=... make images TAG=0.1.0
ENGINE ?= $(firstword $(foreach name,docker buildah,$(if $(shell command -v $(name)),$(name))))
PYTHON_BASE_IMAGE ?= python:3.11-slim-bookworm
JAVA_BASE_IMAGE ?= eclipse-temurin:17-jre
TAG ?= $(VERSION)
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' libs/protocol/src/waltz_protocol/__init__.py)
REVISION = $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
BUILD = $(ENGINE) build --quiet --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION)
images: image-storage image-server image-operator image-tools image-zookeeper image-spark
	@for name in storage server operator tools zookeeper spark; do $(ENGINE) images | grep "waltz-$$name  *$(TAG) "; done

image-storage: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(PYTHON_BASE_IMAGE) -f Dockerfile.storage -t waltz-storage:$(TAG) .

image-server: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(PYTHON_BASE_IMAGE) -f Dockerfile.server -t waltz-server:$(TAG) .

image-operator: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(PYTHON_BASE_IMAGE) -f operator/Dockerfile -t waltz-operator:$(TAG) .

image-tools: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(PYTHON_BASE_IMAGE) -f Dockerfile.tools -t waltz-tools:$(TAG) .

image-zookeeper: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(JAVA_BASE_IMAGE) --build-arg PYTHON_IMAGE=$(PYTHON_BASE_IMAGE) \
		-f manifests/zookeeper/Dockerfile -t waltz-zookeeper:$(TAG) .

image-spark: _engine
	$(BUILD) --build-arg BASE_IMAGE=$(JAVA_BASE_IMAGE) -f spark-on-k8s/deploy/Dockerfile -t waltz-spark:$(TAG) .

_engine:
	@test -n "$(ENGINE)" || { echo "make images needs docker or buildah on PATH" >&2; exit 1; }

# Helm for the tests of manifests/chart, from its Go module, where no helm is on PATH; needs Go, and minutes.
HELM := .helm/helm
helm: $(HELM)

$(HELM):
	GOBIN=$(CURDIR)/.helm go install -ldflags "-s -w" helm.sh/helm/v3/cmd/helm@v3.22.0

# The operator on real Kubernetes: needs docker, kind and kubectl. E2E="--only scale-out --keep" and the like.
e2e: setup
	PYTHON_BASE_IMAGE=$(PYTHON_BASE_IMAGE) JAVA_BASE_IMAGE=$(JAVA_BASE_IMAGE) $(BIN)/python -m tests.e2e $(E2E)

# With attacks that nobody plans: everything that the operator made is deleted, storms of pods, disks lost in turn. Not in CI.
e2e-long:
	$(MAKE) e2e E2E="--long $(E2E)"

# The main job on real data. ROWS=20000 makes it short.
demo: setup
	PYTHONPATH=examples/flights $(BIN)/python -m flights $(if $(ROWS),--rows $(ROWS))

# The flights through a local cluster, counted by a batch job and by a streaming job of Spark, compared with the file.
demo-spark: setup
	PYTHONPATH=examples/flights $(BIN)/python -m flights.spark $(if $(ROWS),--rows $(ROWS))

bench: setup
	$(BIN)/python -m bench $(BENCH)

soak: setup
	$(BIN)/python -m tests.integration.soak $(SOAK)

# Simulated clusters under faults, then the planted bugs. The long run: make sim SEEDS=0:10000
SEEDS ?= 0:1000
PROFILE ?= default
sim: setup
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --profile $(PROFILE)
	$(BIN)/python -m tests.sim.mutants

mutants: setup
	$(BIN)/python -m tests.sim.mutants $(MUTANTS)

# Bugs that the unit tests have to notice: the planted ones and a sample of generated ones. MUTANTS_UNIT="--all" tries every one.
mutants-unit: setup
	$(BIN)/python -m tests.unit_mutants $(MUTANTS_UNIT)

# Faults of many kinds at once on real processes.
MINUTES ?= 10
nemesis: setup
	$(BIN)/python -m tests.integration.nemesis --minutes $(MINUTES) $(NEMESIS)

# Seconds for all decoders and file readers together: make fuzz SECONDS=600
fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60)

coverage: setup
	$(BIN)/python -m tests.coverage

# One file for development, one per image, one for what else is packed; the images' pins are those of development.
LOCK = $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11
IMAGE_PINS := build pyfiles server storage operator tools zookeeper
lock: $(UV)
	$(LOCK) requirements/dev.in -o requirements/dev.txt
	$(LOCK) requirements/uv.in -o requirements/uv.txt
	$(LOCK) requirements/spark-oldest.in -o requirements/spark-oldest.txt
	$(LOCK) requirements/types.in -o requirements/types.txt
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	for name in $(IMAGE_PINS); do $(LOCK) requirements/$$name.in -o requirements/$$name.txt || exit 1; done

clean:
	rm -rf .venv .venv-spark-oldest .venv-types .venv-docs .venv-build .venv-3.* .uv .helm dist
