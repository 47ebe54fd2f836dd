# Every target prepares what it needs; the only thing a machine must have is Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
LOCKS := requirements.txt $(wildcard requirements/*.txt)

.PHONY: setup lock
setup: .venv/.ready

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
	$(COMPILE) pyproject.toml --group infra --group local --group dev --output-file requirements.txt
	for group in toolchain ministack layer; do \
	  $(COMPILE) --group $$group --output-file requirements/$$group.txt; done
	grep -A100 '^uv==' requirements.txt | awk 'NR==1 || /^    /{print; next} {exit}' > requirements/uv.txt
