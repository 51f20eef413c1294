# Every target sets itself up: a local virtual environment from the locked, hashed requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# For two cores: the tests wait a fifth of their time for programs that they start.
TEST_JOBS ?= 3
# They wait most of the time.
REAL_JOBS ?= 4
# The seed of `make test-long`: a new one each time, unless a failure is to be seen again.
SEED := $(or $(SEED),$(shell date +%s))

# The tests start hundreds of processes; each would compile every module again where bytecode is not written.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-long test-real test-real-long test-gpu test-page check check-page format protobuf bench bench-scheduler bench-scheduler-perf manifests picture screenshots image images docs docs-serve lock dist release clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 24

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed; $(PYTHON) is {v[0]}.{v[1]}. Use make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## install the project and its tools into .venv

demo: $(STAMP) ## a scripted day on 20 simulated nodes, with a report; about a minute
	$(BIN)/koord demo

up: $(STAMP) ## start an embedded cluster and the programs; stop with Ctrl-C
	$(BIN)/koord up

test: $(STAMP) ## all tests that need nothing but Python
	$(BIN)/python -m pytest -n $(TEST_JOBS) --ignore=tests/real --ignore=tests/browser --durations 10

test-long: $(STAMP) ## property tests with fresh seeds, and tests that take minutes
	@echo "The seed is $(SEED); to see a failure again: make test-long SEED=$(SEED)"
	KOORDINATOR_EXAMPLES=10 $(BIN)/python -m pytest -n $(TEST_JOBS) --ignore=tests/real --ignore=tests/browser -m "hypothesis or slow" \
		-o faulthandler_timeout=3600 \
		--hypothesis-profile=exploring --hypothesis-seed=$(SEED)

test-real: $(STAMP) ## tests against the real Kubernetes programs and the Go original
	# What foreign programs do in time varies. A test that had to be run again is named in the summary.
	$(BIN)/python -m pytest tests/real -m "real and not slow" -n $(REAL_JOBS) --reruns 1 -rR --durations 40 \
		-o faulthandler_timeout=1200

test-real-long: $(STAMP) ## those of them that take minutes, or that build something first: CONTRIBUTING.md says with what
	$(BIN)/python -m pytest tests/real -m "real and slow" -n $(REAL_JOBS) --reruns 1 -rsR --durations 0 \
		-o faulthandler_timeout=3600

test-gpu: $(STAMP) ## tests that need an NVIDIA GPU: what koordlet says of it beside what nvidia-smi says
	KOORDINATOR_GPU_REQUIRED=1 $(BIN)/python -m pytest tests/gpu -rs

# The tools of the page's scripts, as locked.
NODE_TOOLS := tests/browser/node_modules/.package-lock.json

$(NODE_TOOLS): tests/browser/package-lock.json
	cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

test-page: $(STAMP) ## tests of koord page in a real Chromium; what axe-core finds is tested where npm is there
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NODE_TOOLS); else echo "npm is not here: axe-core does not look at the page"; fi
	$(BIN)/python -m pytest tests/browser -rs

check-page: ## strict types of the page's scripts, where npm is there
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NODE_TOOLS) && cd tests/browser && npx --no-install tsc -p tsconfig.json; \
	else echo "npm is not here: the types of the page's scripts are not checked (apt-get install npm)"; fi

check: $(STAMP) check-page ## format, lint, strict types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m koordinator.api.manifests --check

manifests: $(STAMP) ## write config/, which `koord manifests` prints, and the generated templates of the Helm chart
	$(BIN)/python -m koordinator.api.manifests

protobuf: $(STAMP) ## generate the modules of the .proto files
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/koordinator/api/protobuf/*.proto

format: $(STAMP) ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

picture: $(STAMP) ## play the day and write its report, and the drawings of the pages, to docs/images
	$(BIN)/koord demo --svg docs/images/demo.svg
	$(BIN)/python -m tests.docs.diagrams

docs: $(STAMP) ## build the pages as a site into build/site; a dead link or anchor is an error
	$(BIN)/zensical build --clean --strict

docs-serve: $(STAMP) ## the same at http://127.0.0.1:8000, built again when a page changes; stop with Ctrl-C
	$(BIN)/zensical serve

screenshots: $(STAMP) ## play the day and write pictures of koord page to docs/images
	$(BIN)/python -m tests.browser.screenshots

bench: $(STAMP) ## benchmarks that need nothing but Python; each prints one JSON line
	$(BIN)/python -m benchmarks

bench-scheduler: $(STAMP) ## koord-scheduler beside the Go original on a real API server; AGAINST=COMMIT adds an earlier commit
	$(BIN)/python -m benchmarks.scheduler_throughput $(if $(AGAINST),--against $(AGAINST))

bench-scheduler-perf: $(STAMP) ## Kubernetes' scheduler_perf workloads at a fifth of their size
	$(BIN)/python -m benchmarks.scheduler_perf --scale 0.2

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: $(STAMP) ## resolve pyproject.toml anew into requirements/*.txt
	$(COMPILE) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --group dev -o requirements/dev.txt
	for group in scheduler manager node image; do \
	  $(COMPILE) --constraints requirements/dev.txt --group $$group -o requirements/$$group.txt || exit; done

IMAGES = $(BIN)/python -m images $(ENGINE:%=--engine=%) $(REGISTRY:%=--registry=%) $(BASE:%=--base=%) $(SOURCE:%=--source=%)

image: $(STAMP) ## build the image PROGRAM=koordinator with Docker, Podman or buildah (ENGINE=); docs/container-images.md
	$(IMAGES) $(or $(PROGRAM),koordinator)

images: $(STAMP) ## build the images of all programs: REGISTRY= is what their names begin with
	$(IMAGES)

dist: $(STAMP) ## build wheel, sdist and chart of the last commit, twice with the same bytes, and SHA256SUMS, into dist/
	$(BIN)/python -m release build

release: $(STAMP) ## commit the release of this version and build it, then begin version NEXT=X.Y.Z; nothing is published
	$(BIN)/python -m release cut --next $(NEXT)

clean: ## remove everything that was installed or generated locally
	rm -rf $(VENV) build .cache .mypy_cache .ruff_cache .hypothesis .pytest_cache .data
