# Everyday targets. The README has the plain commands for systems without make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt

export OMP_NUM_THREADS ?= 1
# Compiled files let the tests and their many processes start sooner.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-minutes test-lowest check check-python check-dotnet protos docs dist bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/quantra demo

# The tests of a few seconds.
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m "not slow and not minutes" -n auto

# Also trainings, processes, browsers, packages and C#.
test-all: $(VENV)/dev.stamp
	@command -v dotnet > /dev/null || echo "There is no dotnet on the PATH: the C# tests are left out."
	$(BIN)/python -m pytest -m "not minutes" -n auto

# Tests that train for minutes.
test-minutes: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m minutes

# Tests of calls into libraries with their lowest supported versions, including protobuf 6, which tritonclient needs.
LOWEST := test_wire test_server test_client test_kserve_server test_kserve_tritonclient test_secure_server test_cli
test-lowest: .venv-lowest/stamp
	.venv-lowest/bin/python -m pytest -n auto $(LOWEST:%=tests/predictor/%.py) tests/newcomer/test_exports.py tests/newcomer/test_dataframes.py \
	  'tests/predictor/test_export.py::test_the_file_gives_the_models_numbers[lstm-3]' \
	  tests/predictor/test_report.py::test_the_report_holds_every_number_of_the_forecast \
	  'tests/trainers/test_stock_baseline_fits.py::test_every_row_is_scored_on_the_same_windows_of_short_halted_and_flat_symbols[log-return]'

check: check-python check-dotnet

# With Node's 4 GB pyright forgets types, and takes three times as long.
check-python: export NODE_OPTIONS ?= --max-old-space-size=8192
check-python: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python protos/generate.py --check

check-dotnet: $(VENV)/dev.stamp
	@if command -v dotnet > /dev/null; then \
	  set -e; export QUANTRA_PYTHON="$(abspath $(BIN)/python)"; \
	  dotnet format whitespace dotnet --folder --verify-no-changes; \
	  dotnet build dotnet/Quantra.slnx -c Release -warnaserror; \
	else echo "There is no dotnet on the PATH: the C# build and its format are not checked."; fi

protos: $(VENV)/dev.stamp
	$(BIN)/python protos/generate.py

# The documentation as a site of files that need no server: build/site/index.html.
docs: $(VENV)/dev.stamp
	$(BIN)/python docs/build_site.py

# What a release consists of, in the folder dist.
dist: $(VENV)/dev.stamp
	$(BIN)/python deploy/make_dist.py

bench: $(VENV)/dev.stamp
	missed=; for name in features explain preparing serving faults dotnet loading loop tft_speed memory scales forecasting speech diffusion newcomer universe web; do \
	  $(BIN)/python -m benchmarks.$$name || missed="$$missed $$name"; \
	done; [ -z "$$missed" ] || { echo "missed:$$missed"; exit 1; }

# pip installs torch, from the index that it is configured for; uv installs the rest in a fifth of pip's time.
$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt torch 'uv<1'

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) --editable '.[demo]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(UV) --editable '.[dev]'
	touch $@ $(VENV)/demo.stamp

# Torch stays at the tested version, because its lowest one downloads gigabytes. uv provides --resolution, pip does not.
.venv-lowest/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt torch 'uv<1'
	.venv-lowest/bin/uv pip install --python .venv-lowest/bin/python --resolution lowest-direct --constraint constraints.txt \
	  --editable '.[all,arrow,pandas]' 'protobuf>=6.33.5,<7' 'tritonclient[grpc]>=2.60,<3' \
	  'pytest>=9,<9.2' 'pytest-xdist>=3.8,<4' 'hypothesis>=6.130,<7' 'h2>=4.2,<5'
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest .venv-protos
