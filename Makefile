# The entry points. A fresh machine needs a C and C++ compiler, make and python3 with venv; pip installs the rest into
# .venv.
#
#   VENV=path      another virtual environment      BUILD=path   another build folder
#   JAX_VENV=path  another one with JAX, for `make test-jax`
#   TENSORFLOW_VENV=path  another one with TensorFlow, for `make test-tensorflow`
#   PYTHON=python  the interpreter that makes it    CMAKE_ARGS   more options for cmake
#   GALLERY=words  options of `make gallery`: "--only vit,llama"
#   TORCHES=words  minor versions of torch for `make wheels` (default: all that the device supports), as 2.13,2.15
#   TORCH_WHEELS=path   a folder that has torch's wheels already

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build/release
CMAKE_ARGS ?=
GALLERY ?=

VENV_BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.headrace-stamp
CONFIGURE = $(VENV_BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(VENV_BIN)/ninja -S .
PROGRESS = $(PYTHON) scripts/progress.py
BUILD_STEP = $(VENV_BIN)/cmake --build
LIBRARIES = HEADRACE_ONEDNN=$(abspath $(VENV))/lib/libdnnl.so.3 HEADRACE_LAPACK=$(firstword \
  $(wildcard $(abspath $(VENV))/lib/python*/site-packages/scipy_openblas32/lib/libscipy_openblas.so))
WHEELS_PYTHON = build/wheels/venv/bin/python
# Two processes. Each begins with one half of the tests; the first to end takes over some of the other's.
PYTEST = $(VENV_BIN)/python -m pytest -n 2 --dist worksteal
CTEST = $(VENV_BIN)/ctest --output-on-failure --no-tests=ignore -j 2 --test-dir

# The packages of the virtual environment come without compiled modules; Python writes those that it imports. Without
# them each of the hundreds of processes of the tests would compile torch's again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help build test onnx fuzz fuzz-files fuzz-torch demo demo-graph gallery tools bench bench-c bench-ops check
.PHONY: conformance sanitize sanitize-tensorflow
.PHONY: array-api-tests bench-arrays mlx-tests fuzz-gradients rows conformance-tools sanitize-sample format test-levels
.PHONY: test-jax jax-tests stablehlo-tests jax-venv demo-jax fuzz-jax test-tensorflow tensorflow-venv demo-tensorflow
.PHONY: conformance-tensorflow conformance-tensorflow-kernels conformance-keras
.PHONY: wheels test-wheels clean venv python-package

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## the virtual environment with the pinned packages of requirements-dev.txt

# Compiling all of the packages' modules took half of pip's time; Python compiles those that it imports.
$(STAMP): requirements-dev.txt
	@test -x $(VENV)/bin/python || $(PROGRESS) "making $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(PROGRESS) "packages of requirements-dev.txt into $(VENV)" \
	  $(VENV)/bin/python -m pip install --no-compile -r requirements-dev.txt
	@touch $@

build: $(STAMP) ## the core, the command and the C tests, in build/release
	@$(CONFIGURE) -B $(BUILD) --log-level=NOTICE -DCMAKE_BUILD_TYPE=Release $(CMAKE_ARGS)
	$(BUILD_STEP) $(BUILD)

# Frontends for Python, into the virtual environment, with the core of the C tests' build folder. The first time takes
# some minutes.
python-package: $(STAMP) ## the Python package, installed in place into the virtual environment
	@PATH=$(VENV_BIN):$$PATH SKBUILD_BUILD_DIR=$(BUILD) SKBUILD_CMAKE_DEFINE=HEADRACE_TESTS=ON \
	  $(PROGRESS) "the core and the PyTorch frontend into $(BUILD)" \
	  $(VENV)/bin/python -m pip install --verbose --no-build-isolation --no-deps -e .

JAX_VENV ?= build/jax-venv
JAX_STAMP = $(JAX_VENV)/.stamp
# HEADRACE_PACKAGES: PyTorch's device and arrays, for a test of all three in one process.
JAX_PYTHON = $(LIBRARIES) HEADRACE_PACKAGES=$(firstword $(wildcard $(abspath $(VENV))/lib/python*/site-packages)) \
  HEADRACE_JAX_LIBRARY=$(abspath $(BUILD))/frontends/jax/libheadrace_jax.so \
  PYTHONPATH=frontends/jax $(JAX_VENV)/bin/python
define TEST_JAX
$(JAX_PYTHON) -m pytest -q -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true frontends/jax/tests
$(JAX_PYTHON) tests/jax_suite/run.py --sample
$(JAX_PYTHON) tests/stablehlo/artifacts.py
endef

jax-venv: $(JAX_STAMP)

$(JAX_STAMP): requirements-jax.txt
	@test -x $(JAX_VENV)/bin/python || $(PROGRESS) "making $(JAX_VENV)" $(PYTHON) -m venv $(JAX_VENV)
	@$(PROGRESS) "packages of requirements-jax.txt into $(JAX_VENV)" \
	  $(JAX_VENV)/bin/python -m pip install --no-compile -r requirements-jax.txt
	@touch $@

TENSORFLOW_VENV ?= build/tensorflow-venv
TENSORFLOW_STAMP = $(TENSORFLOW_VENV)/.stamp
TENSORFLOW_PYTHON = $(LIBRARIES) PYTHONPATH=frontends/tensorflow \
  TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$(abspath $(BUILD))/frontends/tensorflow/libheadrace_tensorflow.so \
  $(TENSORFLOW_VENV)/bin/python
TEST_TENSORFLOW = $(TENSORFLOW_PYTHON) -m pytest -q -o faulthandler_timeout=300 \
  -o faulthandler_exit_on_timeout=true frontends/tensorflow/tests

tensorflow-venv: $(TENSORFLOW_STAMP)

# One line if pip fails: TensorFlow has wheels for a few CPythons only, of 600 MB.
$(TENSORFLOW_STAMP): requirements-tensorflow.txt
	@test -x $(TENSORFLOW_VENV)/bin/python || \
	  $(PROGRESS) "making $(TENSORFLOW_VENV)" $(PYTHON) -m venv $(TENSORFLOW_VENV)
	@$(PROGRESS) "packages of requirements-tensorflow.txt into $(TENSORFLOW_VENV)" \
	  $(TENSORFLOW_VENV)/bin/python -m pip install --no-compile --log $(TENSORFLOW_VENV)/pip.log \
	  -r requirements-tensorflow.txt 2> /dev/null || { \
	  echo "$$(grep ^tensorflow= $<) could not be installed for $$($(TENSORFLOW_VENV)/bin/python --version), it has" \
	  "wheels for CPython 3.9 to 3.12: see $(TENSORFLOW_VENV)/pip.log" >&2; false; }
	@touch $@

test: build python-package $(JAX_STAMP) $(TENSORFLOW_STAMP) ## the C tests, then those in Python
	$(LIBRARIES) $(CTEST) $(BUILD)
	$(LIBRARIES) $(PYTEST) frontends/python/tests
	$(TEST_JAX)
	$(TEST_TENSORFLOW)
	$(PYTEST) tests

test-jax: build $(JAX_STAMP) ## the tests of the plug-in for JAX, and a sample of JAX's own, of HEADRACE_JAX_SOURCE
	$(TEST_JAX)

test-tensorflow: build $(TENSORFLOW_STAMP) ## the tests of the device for TensorFlow
	$(TEST_TENSORFLOW)

conformance-tensorflow: build $(TENSORFLOW_STAMP) ## each operation of the device for TensorFlow in each dtype, also in functions and with gradients; docs/coverage-tensorflow.md
	HEADRACE_SWEEP=all $(TEST_TENSORFLOW)/test_table.py frontends/tensorflow/tests/test_ops.py \
	  frontends/tensorflow/tests/test_training.py
	$(PYTHON) scripts/make_tensorflow_coverage.py

conformance-tensorflow-kernels: build $(TENSORFLOW_STAMP) ## TensorFlow's tests of kernels, of the checkout HEADRACE_TF_SOURCE; OPTIONS='--only nn_ops'
	$(TENSORFLOW_PYTHON) tests/tf_suite/run.py $(OPTIONS)

conformance-keras: build $(TENSORFLOW_STAMP) ## Keras' own tests on the device and on TensorFlow's CPU device; OPTIONS='--only losses'
	$(TENSORFLOW_PYTHON) tests/keras_suite/run.py $(OPTIONS)

jax-tests: build $(JAX_STAMP) ## JAX's own tests, of the checkout HEADRACE_JAX_SOURCE; OPTIONS='--files lax_test'
	$(JAX_PYTHON) tests/jax_suite/run.py $(OPTIONS)

stablehlo-tests: build $(JAX_STAMP) ## StableHLO's own tests, of the checkout HEADRACE_STABLEHLO_SOURCE; OPTIONS='--select add'
	JAX_ENABLE_X64=1 $(JAX_PYTHON) tests/stablehlo/run.py $(OPTIONS)
	$(JAX_PYTHON) tests/stablehlo/artifacts.py --texts

fuzz: build ## 10,000 random programs, 2,000 of them compiled, 1,000 with 14 shapes each; HEADRACE_TEST_SEED selects them
	HEADRACE_TEST_PROGRAMS=$${HEADRACE_TEST_PROGRAMS:-10000} $(BUILD)/tests/random_program_test
	HEADRACE_TEST_PROGRAMS=$$(($${HEADRACE_TEST_PROGRAMS:-10000} / 10)) $(BUILD)/tests/general_plan_test
	HEADRACE_CC_SECONDS=600 HEADRACE_TEST_PROGRAMS=$$(($${HEADRACE_TEST_PROGRAMS:-10000} / 5)) \
	  $(BUILD)/tests/emit_program_test
	HEADRACE_CC_SECONDS=600 HEADRACE_TEST_COMPILERS=1 $(BUILD)/tests/emit_ops_test

fuzz-files: build ## 10,000,000 mutated files of arrays and of each kind of model; HEADRACE_TEST_SEED selects them
	HEADRACE_TEST_FILES=$${HEADRACE_TEST_FILES:-10000000} $(BUILD)/tests/file_fuzz_test
	HEADRACE_TEST_FILES=$${HEADRACE_TEST_FILES:-10000000} $(BUILD)/tests/onnx_test damaged
	HEADRACE_TEST_FILES=$${HEADRACE_TEST_FILES:-10000000} $(BUILD)/tests/package_test mutated
	HEADRACE_TEST_FILES=$${HEADRACE_TEST_FILES:-10000000} $(BUILD)/tests/stablehlo_test wrong
	HEADRACE_TEST_FILES=$${HEADRACE_TEST_FILES:-10000000} $(BUILD)/tests/graphdef_test mutated

onnx: build ## the tests of the package onnx on imported models; OPTIONS='--only Resize'
	$(LIBRARIES) $(VENV_BIN)/python tests/onnx/run.py --library $(BUILD)/libheadrace.so $(OPTIONS)
	$(LIBRARIES) $(VENV_BIN)/python tests/onnx/symbols.py --library $(BUILD)/libheadrace.so
	$(LIBRARIES) $(VENV_BIN)/python tests/onnx/regions.py --library $(BUILD)/libheadrace.so
	$(LIBRARIES) $(VENV_BIN)/python tests/onnx/goldens.py --library $(BUILD)/libheadrace.so
	$(LIBRARIES) $(VENV_BIN)/python tests/onnx/networks.py --library $(BUILD)/libheadrace.so

fuzz-torch: build python-package ## 1,000 random PyTorch programs against torch's CPU device; OPTIONS='--programs 50000'
	$(LIBRARIES) $(VENV_BIN)/python tests/fuzz/torch_fuzz.py $(OPTIONS)

test-lengths: build python-package ## three networks at each length from 1 to 300, in all modes
	$(LIBRARIES) HEADRACE_TEST_LENGTHS=300 \
	  $(VENV_BIN)/python -m pytest -q tests/python/test_any_shape.py -k "all_modes"

fuzz-jax: build $(JAX_STAMP) ## 1,000 random JAX programs against its CPU backend; OPTIONS='--programs 5000 --seed 1'
	$(JAX_PYTHON) tests/fuzz/jax_fuzz.py $(OPTIONS)

fuzz-gradients: python-package ## gradients of 2,000 random compositions of views and writes against torch's
	$(LIBRARIES) HEADRACE_TEST_COMPOSITIONS=$${HEADRACE_TEST_COMPOSITIONS:-2000} \
	  $(VENV_BIN)/python -m pytest -q frontends/python/tests/test_transforms.py -k compositions

rows: python-package ## gradients and vmap of each function: complex numbers and other numbers, too (90 s)
	$(LIBRARIES) HEADRACE_TEST_ROWS=all $(VENV_BIN)/python -m pytest -q frontends/python/tests/test_every_row.py

demo: python-package ## the demonstration
	$(VENV)/bin/python examples/demo.py

JAX_DEMO_STAMP = $(JAX_VENV)/.demo-stamp

$(JAX_DEMO_STAMP): requirements-jax-demo.txt $(JAX_STAMP)
	@$(PROGRESS) "packages of requirements-jax-demo.txt into $(JAX_VENV)" \
	  $(JAX_VENV)/bin/python -m pip install --no-compile -r requirements-jax-demo.txt
	@touch $@

demo-jax: build $(JAX_DEMO_STAMP) ## the demonstration on JAX: its CPU backend and Headrace; OPTIONS='--epochs 8'
	$(JAX_PYTHON) examples/demo_jax.py $(OPTIONS)

TENSORFLOW_DEMO_STAMP = $(TENSORFLOW_VENV)/.demo-stamp

$(TENSORFLOW_DEMO_STAMP): requirements-tensorflow-demo.txt $(TENSORFLOW_STAMP)
	@$(PROGRESS) "packages of requirements-tensorflow-demo.txt into $(TENSORFLOW_VENV)" \
	  $(TENSORFLOW_VENV)/bin/python -m pip install --no-compile -r requirements-tensorflow-demo.txt
	@touch $@

demo-tensorflow: build $(TENSORFLOW_DEMO_STAMP) ## Keras on TensorFlow's CPU device and Headrace; OPTIONS='--epochs 8'
	$(TENSORFLOW_PYTHON) examples/demo_tensorflow.py $(OPTIONS)

demo-graph: python-package ## the demonstration's network as a file: answers and training without torch
	$(LIBRARIES) $(VENV_BIN)/python examples/graph_demo.py

gallery: build python-package ## networks people know on both devices, compared; pictures in build/gallery
	cd examples && $(VENV_BIN)/python -m gallery $(GALLERY)

tools: python-package ## two networks under each tool, and a page of what it shows: build/tools/index.html
	$(LIBRARIES) $(VENV_BIN)/python bench/tools.py $(OPTIONS)

bench: build python-package ## the benchmarks, with their table
	$(VENV)/bin/python bench/run.py

bench-arrays: python-package ## arrays beside NumPy, MLX and torch; OPTIONS='--quick'; pictures in build/arrays-bench
	$(LIBRARIES) $(VENV_BIN)/python bench/arrays.py
	$(LIBRARIES) $(VENV_BIN)/python bench/array_networks.py $(OPTIONS)

bench-c: build ## costs of records, commits and repeated steps in C; kernels, interpreted and compiled
	@$(BUILD_STEP) $(BUILD) --target benchmarks
	$(BUILD)/bench/record_bench
	$(LIBRARIES) $(BUILD)/bench/function_bench
	$(LIBRARIES) $(BUILD)/bench/step_bench
	$(LIBRARIES) $(BUILD)/bench/neighbour_bench
	$(BUILD)/bench/interp_bench

bench-ops: build python-package ## times every operator, writes docs/operator-speed.md; OPTIONS='--quick'
	$(VENV_BIN)/python bench/ops.py $(OPTIONS)

conformance: build python-package ## the drivers' conformance suite; PyTorch's operators, and docs/coverage.md from that
	$(LIBRARIES) $(CTEST) $(BUILD) -L conformance
	$(VENV)/bin/python tests/conformance/device_types.py
	$(VENV)/bin/python tests/conformance/run.py --report

array-api-tests: python-package ## the array API standard's own tests, of the checkout HEADRACE_ARRAY_API_SOURCE
	$(LIBRARIES) $(VENV_BIN)/python tests/conformance/array_api.py $(OPTIONS)

conformance-tools: build python-package ## torch's own tests of backends, of torch.distributed's on two ranks
	$(VENV)/bin/python tests/conformance/distributed.py --seconds 120
	$(VENV)/bin/python tests/conformance/out_of_tree.py

mlx-tests: python-package ## MLX's own tests on headrace.mlx, from the checkout that HEADRACE_MLX_SOURCE names; OPTIONS='--only test_ops'
	$(LIBRARIES) $(VENV)/bin/python tests/mlx_suite/run.py $(OPTIONS)

# Every scripts/make_*.py writes generated files, and with --check says whether they are fresh.
check: $(STAMP) ## the rules: includes, generated files, pages, formatting, warnings (gcc and clang), static variables
	$(PYTHON) scripts/check_includes.py
	@set -e; for script in $(wildcard scripts/make_*.py); do \
	  echo "$(PYTHON) $$script --check"; $(PYTHON) $$script --check; \
	done
	$(PYTHON) scripts/check_docs.py
	@scripts/check_format.sh
	@scripts/check_warnings.sh $(VENV_BIN)
	$(PYTHON) scripts/check_statics.py

format: ## rewrites all sources as clang-format wants them
	@scripts/check_format.sh --fix

# Both run the C tests with a share of their random programs and layouts (tests/c/hr_test.h). Under the thread sanitizer
# tests that start no thread are left out (CMakeLists.txt).
#
# - No oneDNN: the thread sanitizer can't see into libgomp, whose team oneDNN uses.
# - No GPU: CUDA's driver hangs under the thread sanitizer, and leaks (tests/c/leaks.supp).
# - Fixed addresses, if the system can: the thread sanitizer refuses some of the kernel's random ones.
# - By default gcc 13's address sanitizer moves variables with 64-byte alignment to stacks of its own that lack it.
# - No comma in the folders' names: the compiler splits the linker's options at it.
SAME_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
SANITIZED = env -u HEADRACE_ONEDNN -u HEADRACE_LAPACK CUDA_VISIBLE_DEVICES= \
  ASAN_OPTIONS=detect_stack_use_after_return=0 \
  LSAN_OPTIONS=suppressions=$(abspath tests/c/leaks.supp):print_suppressions=0 \
  TSAN_OPTIONS=suppressions=$(abspath tests/c/races.supp):print_suppressions=0 $(SAME_ADDRESSES)
SANITIZE_BUILD = $(CONFIGURE) --log-level=NOTICE -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1"

sanitize: $(STAMP) ## the C tests under the address, undefined-behaviour and thread sanitizers
	@set -e; for kinds in address,undefined thread; do \
	  folder=build/sanitize-$${kinds%%,*}; \
	  $(SANITIZE_BUILD) -B $$folder -DHEADRACE_SANITIZE=$$kinds; \
	  $(BUILD_STEP) $$folder; \
	  $(SANITIZED) $(CTEST) $$folder; \
	done

sanitize-tensorflow: $(STAMP) ## the C tests of the device for TensorFlow under the same sanitizers: graphs, and eight threads
	@set -e; for kinds in address,undefined thread; do \
	  folder=build/sanitize-$${kinds%%,*}; \
	  $(SANITIZE_BUILD) -B $$folder -DHEADRACE_SANITIZE=$$kinds -DHEADRACE_TENSORFLOW=ON; \
	  $(BUILD_STEP) $$folder --target graphdef_test node_test plugin_threads_test; \
	  $(SANITIZED) $(CTEST) $$folder -R '^(graphdef|node|plugin_threads)_test$$'; \
	done

# Tests that reach most of the core in the least time.
SAMPLE = batch_test compile_test compile_queue_test device_agreement_test driver_conformance_test emit_ops_test \
  exit_test file_fuzz_test interp_fuzz_test interp_test layout_test live_layout_test match_test part_test \
  policy_test provider_test random_program_test replay_test runtime_test stream_test thread_test weights_test

sanitize-sample: $(STAMP) ## a few of the C tests under the address and undefined-behaviour sanitizers
	@$(SANITIZE_BUILD) -B build/sanitize-address -DHEADRACE_SANITIZE=address,undefined
	$(BUILD_STEP) build/sanitize-address --target $(SAMPLE)
	$(SANITIZED) $(CTEST) build/sanitize-address -R "^($$(echo $(SAMPLE) | tr ' ' '|'))$$"

# The build that ships: hot loops for each level of x86-64, selected at run time (src/base/cpu.h). For a level that the
# machine lacks, the next lower one runs.
test-levels: $(STAMP) ## the C tests of the build for any x86-64, at each level of the processor
	@$(CONFIGURE) -B build/levels --log-level=NOTICE -DCMAKE_BUILD_TYPE=Release -DHEADRACE_NATIVE=OFF $(CMAKE_ARGS)
	$(BUILD_STEP) build/levels
	$(PYTHON) scripts/check_isa.py build/levels
	@set -e; for level in v2 v3 v4; do HEADRACE_CPU=$$level $(LIBRARIES) $(CTEST) build/levels; done

wheels: build/wheels/venv/stamp ## the wheel for x86-64 Linux, in dist; needs gcc 12 and a few GB for torch's wheels
	$(WHEELS_PYTHON) scripts/build_wheel.py $(if $(TORCHES),--torches $(TORCHES))

build/wheels/venv/stamp: requirements-wheels.txt
	test -x $(WHEELS_PYTHON) || $(PYTHON) -m venv build/wheels/venv
	$(WHEELS_PYTHON) -m pip install --quiet -r requirements-wheels.txt
	@touch $@

test-wheels: wheels ## the wheel in fresh environments without a compiler, for each torch and each CPython that is found
	$(PYTHON) tests/wheel/run.py dist/headrace-*.whl $(OPTIONS)

clean: ## removes the build folders; .venv stays
	rm -rf build
