#!/usr/bin/env python3
"""Writes docs/jax.md from the tables of src/importers/stablehlo and of the plug-in; --check fails if it is stale."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs/jax.md"
TABLES = ROOT / "src/importers/stablehlo"
ENTRIES = ROOT / "frontends/jax/csrc/entries.def"
ROW = re.compile(r"^HR_HLO\((\w+),", re.MULTILINE)
NAMED = re.compile(r'^HR_HLO_NAMED\("([^"]+)",', re.MULTILINE)
# Operations of StableHLO 1.17 that programs of JAX may have; the table adds older ones.
OPERATIONS = """
abs add after_all all_gather all_reduce all_to_all and async_done async_start atan2 batch_norm_grad batch_norm_inference
batch_norm_training bitcast_convert broadcast_in_dim case cbrt ceil cholesky clamp collective_broadcast
collective_permute collective_reduce compare complex composite concatenate constant convert convolution cosine
count_leading_zeros custom_call divide dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota
dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice exponential exponential_minus_one fft floor gather
get_dimension_size get_tuple_element if imag infeed iota is_finite log log_plus_one logistic map maximum minimum multiply negate not
optimization_barrier or outfeed pad partition_id popcnt power real recv reduce reduce_precision reduce_scatter
reduce_window remainder replica_id reshape reverse rng rng_bit_generator round_nearest_afz round_nearest_even rsqrt
scatter select select_and_scatter send shift_left shift_right_arithmetic shift_right_logical sign sine slice sort sqrt
subtract tan tanh transpose triangular_solve tuple uniform_dequantize uniform_quantize while xor
""".split()
HEAD = """\
<!-- Generated from src/importers/stablehlo/operations.def and names.def by scripts/make_jax.py; do not edit. -->
# JAX

Headrace is a platform of JAX: `jit`, `grad`, `vmap` and `scan` compile to StableHLO, which the plug-in reads and runs.
Programs need no change.

## Install

```
make wheels                                        # dist/headrace-*.whl and dist/headrace_jax-*.whl
pip install dist/headrace-*.whl dist/headrace_jax-*.whl
JAX_PLATFORMS=headrace python -c "import jax; print(jax.devices())"      # [headrace:0]
```

From a checkout, with gcc: `pip install .`, then `pip install ./frontends/jax`. Both packages must have the same
version. If an index has both, `pip install headrace[jax]` installs them. The wheels are tested with jax 0.10.2 on
CPython 3.11 to 3.13; other versions of jax 0.10 and 0.11 may work, and a warning names the tested ones. Earlier
versions are refused.

## Use

`JAX_PLATFORMS=headrace` makes Headrace the default platform. Without the variable JAX keeps its own default, and
`jax.devices("headrace")` selects Headrace.

```python
import jax
import jax.numpy as jnp

@jax.jit
def step(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.1 * gradient, loss

key = jax.random.key(0)
x, weights = jax.random.normal(key, (64, 3)), jnp.zeros((3, 1))
for _ in range(100):
    weights, loss = step(weights, x, x @ jnp.array([[1.0], [-2.0], [3.0]]))
print(weights.ravel().round(2), loss)
```

`JAX_PLATFORMS=headrace,cpu` has JAX's CPU backend as well: `jax.device_put(x, jax.devices("cpu")[0])` moves an array
there. Two programs show more:

- `make demo-jax` trains a convolutional network on both platforms and draws their losses and times
  ([demo_jax.py](../examples/demo_jax.py)).
- [gpt2_flax.py](../examples/gpt2_flax.py) trains a small GPT-2 with flax and optax.

## Semantics

- **A call returns at once.** Its operations join the stream's trace, and run when a value is needed: `print`,
  `np.asarray`, `block_until_ready`. Consecutive calls are fused with each other: eager `jnp.exp(g(f(x)))` with two
  jitted functions is one kernel ([architecture.md](architecture.md)).
- **Time is measured after `block_until_ready`**, as on every platform of JAX.
- **Random numbers** are JAX's: the same key gives the same bits as on its CPU backend.
- **Integers**: division by 0, shifts by more than the width and conversions of numbers that are too large have XLA's
  results.
- **Floats** differ from XLA's in the last digits, because sums have another order. With 1 and 2 threads Headrace's bits
  are the same.
- **Zeros**: `max` and `min` of 0 and -0 give the second operand if neither is a constant. XLA gives 0 and -0.
- **Convolutions** skip padding and the holes of a dilated input in every dtype: an infinite weight gives NaN only where
  it meets a 0 of the input. XLA's CPU backend does so for f64 and for transposed convolutions without groups.
- **Precision**: products of f32 are computed in f32 for each value of `jax.default_matmul_precision`. On an
  H100 or H200 `HEADRACE_SPLIT_PRODUCTS=on` makes large ones of [bf16 parts](gpu.md#requirements).
- **Dtypes**: all of JAX, with `JAX_ENABLE_X64=1` also f64, i64 and c128. Narrow floats and integers of 2 and 4 bits are
  stored in bytes.
- **Quantized elements** of StableHLO, which JAX does not make, are integers. Operations compute with the numbers they
  stand for, and round the results. Regions of quantized elements are an error.
- **`memory_analysis()`** counts arguments, results and donated memory. Temporaries share memory with those of other
  programs, and are not counted.
- **JAX's cache** of compiled programs (`jax_compilation_cache_dir`) keeps programs as they came. Headrace keeps kernels
  on disk by itself (`HEADRACE_CACHE`).
- **Kinds of memory** (`memory_kind="pinned_host"`) of the host are those of JAX's CPU backend. All are the same memory.
  A GPU has `device` alone.
- **Donation** works: `donate_argnums` deletes the arguments. Results of element-wise operations take over the memory of
  those from 64 KB, unless it is NumPy's: a training step updates its parameters in place.
- **Layouts** (`jax.experimental.layout`) may be any order of dims: `device_put` and `jit` make them, and an output
  with `Layout.AUTO` that is a transpose has the order of a view. Programs compute on row-major elements, and copy
  arguments of other orders at each call. Tiles are an error.
- **Memory** of NumPy arrays from 64 KB is used in place by `device_put` if it is aligned to 64 bytes; `jnp.array(x)`
  copies. `np.asarray` and DLPack of a device array on the CPU copy nothing.
- **Forked processes** (`multiprocessing` with its default on Linux) read values from before the fork and run programs
  that were compiled before it. A new program raises an error, because JAX compiles on threads that stay in the parent:
  use `multiprocessing.get_context("spawn")`, or fork before the first use of JAX.
- **Ctrl-C** cancels pending work between two operations, two iterations of a loop, or parts of 32 MB of a kernel.
- **Errors** come from the `jit` call: `UNIMPLEMENTED` names the operation and its line in your program.
- **Short memory** is an error of the arrays concerned, at `block_until_ready` or a read: it names the operation, its
  dims and the bytes, and its line in your program if `HEADRACE_DEBUG=2` is set. Donated arguments are lost then.
- **Decompositions of matrices** are LAPACK's, as on JAX's CPU backend.
- **Callbacks**: `jax.debug.print`, `jax.pure_callback` and `io_callback` call Python from a running program.
  `jax.experimental.buffer_callback` reads and writes the arrays' memory without copies.
- **Functions of XLA's FFI** (`jax.ffi`) that are registered for `headrace` or `cpu` are called on the host's devices,
  with their attributes, states and errors.
- **Programs of JAX's CPU platform** run: its lowering rules for primitives that have no other one, its branch of
  `jax.lax.platform_dependent` if there is no default, and functions that `jax.export` wrote for `cpu`.

## Limits

- Programs over several devices (`pmap`, `shard_map`, sharded arrays, collectives) run on several GPUs, and on devices
  of the host (`HEADRACE_CPU_DEVICES=4`), which are for tests. Collectives of GPUs go through NCCL: on two H200 a `psum`
  of 4 KiB takes 243 us (JAX CUDA: 138), of 4 MiB 265 (191), of 64 MiB 548 (548). Without NCCL (`HEADRACE_NCCL`) they
  copy through the host's memory, 3.3 ms for 4 MiB. Shardings that a program leaves open follow from those of its
  arguments, by Shardy's propagation, and each device computes its parts. Operations that mix divided dims gather them
  before. Each device factorises the matrices of its part of a batch. Two kinds of programs run whole on each device:
  those with custom calls that have no batch and are no callbacks, and those with dims that their axes do not divide.
  There the first device has all of a tensor with unreduced axes, and the others have zeros.
- Dims must be numbers when a program is compiled; `jax.export` with symbolic dims needs them refined.
- Callbacks of Python run on the host. A GPU waits for them, and copies their arrays there and back.
- Pallas is missing.

## Environment

| variable | what it does |
|---|---|
| `JAX_PLATFORMS` | `headrace` selects the platform, `headrace,cpu` has both |
| `HEADRACE_DEVICE` | `cpu` (default), `cuda` for all GPUs, `cuda:1` for one |
| `HEADRACE_CPU_DEVICES` | number of devices of the host; the default is 1 |
| `HEADRACE_THREADS` | threads; the default is the number of cores |
| `HEADRACE_JAX_LIBRARY` | path of `libheadrace_jax.so`, if it is not beside the package: that of a build folder |
| `HEADRACE_ONEDNN`, `HEADRACE_LAPACK` | paths of the libraries, if they are not those of the virtual environment |

`jax.profiler.trace` shows each kernel and library call, with the names and lines that its operations have in the
program (`tf_op`, `source`), dims, bytes, floating-point operations and their rates (`GB/s`, `GFLOP/s`). Tools for XLA's
profiles read the file, and `jax.profiler.ProfileData`. Programs, copies and compilers have lines of their own.

[environment.md](environment.md) lists all variables of Headrace. `HEADRACE_DEBUG=2` prints each kernel with the
names of its operations in the program (`<- jit(f)/dot_general, jit(f)/tanh`), `HEADRACE_PROFILE=ops` a table at the end.
`HEADRACE_DUMP=folder` writes the programs that are compiled, with these names and lines, and `headrace explain` lists
their steps ([watching.md](watching.md)).

## Troubleshooting

| what you see | why, and what to do |
|---|---|
| `Backend 'headrace' is not in the list of known backends` | `headrace-jax` is not installed in this environment: `pip list` |
| `Platform 'headrace' is experimental` | JAX prints this for each plug-in that it does not know |
| `there is no ...libheadrace_jax.so` | a checkout without a build: `make build`, and set `HEADRACE_JAX_LIBRARY` |
| `oneDNN could not be loaded` | products and convolutions are slow: `pip install onednn-cpu-gomp` |
| `UNIMPLEMENTED: headrace: ...` | an operation below is missing; run this part on the CPU platform |
| `jax.devices()` has the CPU | `JAX_PLATFORMS` is not set, or was set after the first import of jax |
| the first call is slow | new kernels are compiled in the background; the second process finds them on disk |

## Speed

{speed}

## Operations

{count} of StableHLO's {total} operations are read:

```
{supported}
```

These are not; a program with one of them fails when it is compiled:

```
{missing}
```

Custom calls and composites with these names are known. Other composites are their decomposition:

```
{named}
```

## The plug-in's table

PJRT 0.114 has {entries} functions, of which {done} are implemented. Buffers may get their contents later (transfer
managers, aliases, control dependencies): a use that comes first waits on the device's queue, and that of an alias is an
error. An extension or a function that a newer client calls beyond this table is absent. These fail with
`UNIMPLEMENTED` and their name, since they belong to programs with `send` and `recv`, and to devices with several kinds
of memory:

```
{absent}
```

## Tests

`make test-jax` runs the tests of the plug-in, and a fixed sample of JAX's own tests if `HEADRACE_JAX_SOURCE` names a
checkout of JAX. `make jax-tests` runs all of them on Headrace and on JAX's CPU backend, and keeps the results of each
file: `OPTIONS='--files lax_test --again'` runs a file again. [jax-tests.md](jax-tests.md) has the results.
`make stablehlo-tests` runs StableHLO's, of the checkout `HEADRACE_STABLEHLO_SOURCE`.
`make fuzz-jax` compares random programs with that backend.
"""
SPEED = """\
2-core AMD EPYC (family 26 model 2) with AVX-512, idle, jax 0.10.2, two threads, 2026-12-01 (`bench/jax_cases.py
--threads 2 --rounds 2`). Ratios are JAX's CPU backend by Headrace: by the clock, in CPU time of both threads, and by
the clock of the first call, with compilation and a cold disk cache. Results differ by at most 2e-5 of their standard
deviation, losses of the first 12 training steps by 4e-6. This virtual machine's host changes its caches and the speed
of its memory. So GPT-2's training differs from hour to hour, on both sides:

| | JAX CPU, ms | Headrace, ms | ratio |
|---|---|---|---|
| 2026-11-30 | 650 | 298, 293 | 2.19, 2.24 |
| 2026-12-01, early | 587, 602 to 625 | 273, 283 to 288 | 2.15, 2.10, 2.17, 2.17 |
| three hours later | 659, 700, 698 | 322, 336, 349 | 2.04, 2.09, 2.00 |
| the early build, in turn with the last two | 731, 683 | 348, 331 | 2.10, 2.06 |

| case | JAX CPU, ms | Headrace, ms | a call | CPU time | the first call |
|---|---:|---:|---:|---:|---:|
| CNN 28x28, train, batch 512, dropout, Adam, donated | 738 | 83.0 | 8.89x | 6.1x | 8.8x |
| CNN 28x28, infer, batch 512 | 64.4 | 24.7 | 2.61x | 2.4x | 1.3x |
| CNN 28x28, infer, batch 1 | 0.271 | 0.099 | 2.73x | 2.3x | 3.9x |
| softshrink MLP, train, batch 64 | 0.614 | 0.324 | 1.90x | 1.5x | 4.3x |
| softshrink MLP, infer, batch 1 | 0.051 | 0.022 | 2.29x | 1.5x | 4.8x |
| GPT-2 small, train, 1 x 128 tokens | 659 | 322 | 2.04x | 2.1x | 6.4x |
| GPT-2 small, infer, 1 x 128 tokens | 99.9 | 75.8 | 1.32x | 1.3x | 2.5x |
| element-wise chain, 4,194,304 floats | 2.60 | 1.24 | 2.10x | 2.0x | 2.2x |
| element-wise chain, 262,144 floats | 0.209 | 0.082 | 2.54x | 2.3x | 2.9x |
| element-wise chain, 64 floats | 0.004 | 0.004 | 1.02x | 1.1x | 2.8x |
| `scan` of 1,000 LSTM cells of 64 | 1.23 | 0.985 | 1.25x | 1.3x | 4.2x |
| `while_loop` of 1,000 steps on scalars | 0.009 | 0.007 | 1.32x | 1.3x | 1.7x |

- A loop of a known number of iterations, whose elements do not depend on each other, is one call of a kernel: 1.4 ns an
  iteration of the `while_loop` above. JAX's CPU backend takes 3. Iterations of other loops on scalars cost 5 ns.
- GPT-2's products are 95 % of the time of inference. They run at some 245 GFLOP/s of one core, whose peak is 265: 1.4
  times the speed of JAX's CPU backend would be that peak. In training JAX took 615 to 741 ms in six runs. Headrace
  took 324 in two of the first three and 294, 299 and 314 since products with transposed weights have a loop of our own
  and the largest two are sgemm's: 2.19, 2.19 and 2.07 times the speed. Since gradients of embeddings have no memory it
  takes 284 to 289 where JAX takes 649 to 666 (least of 14 and of 8 steps, at real-time priority, in turn): 2.3 times.

First calls with both cores taken from others, garbage of the imports collected before, ms. JAX traces the CNN's step
for 75 of these, lowers it for 39 (62 for its CPU backend) and writes it as bytes for 10:

| case | JAX CPU | Headrace | |
|---|---:|---:|---:|
| CNN 28x28, train, batch 512 | 2,299 | 275 | 8.4x |
| CNN 28x28, infer, batch 512 | 105 | 79 | 1.3x |
| CNN 28x28, infer, batch 1 | 97 | 24 | 4.0x |
| softshrink MLP, train, batch 64 | 427 | 92 | 4.6x |

GPT-2's first training step touches 1 GB for the first time, 0.65 of it for new parameters, since those of NumPy stay as
they are. That took 0.4 to 2.5 s of two cores on this virtual machine, whose host has to find each page first.

A call costs this much CPU time, in microseconds, with one thread (`python bench/jax_calls.py --rounds 4`, 2026-11-30,
the same machine, both cores taken from others). "nothing" is a plug-in that records nothing (`HEADRACE_JAX_NOP=1`): the
share of JAX itself, most of it Python's interpreter and JAX's C++.

| a call, waited for | JAX CPU | Headrace | nothing |
|---|---:|---:|---:|
| `jit(x + 1)` of 4 floats | 3.73 | 3.29 | 2.73 |
| `x + y` of 4 floats, eager | 5.16 | 4.81 | 4.10 |
| `jit` with 100 inputs and outputs | 143 | 117 | 98 |
| `device_put` of 4 MiB | 114 | 101 | 104 |
| `np.asarray(jit(x + 1))` of 4 floats | 4.05 | 4.08 | 3.51 |

Resident memory beyond that before the first step, in MB (`python bench/jax_calls.py --memory`):

| case | JAX CPU | Headrace |
|---|---:|---:|
| CNN training, batch 512, donated, peak of 40 steps | 659 | 111 |
| softshrink MLP training, batch 64, donated, peak of 100 steps | 80 | 24 |
| GPT-2 small training, 1 x 128 tokens, donated, peak of 8 steps | 1,196 | 997 |
| the same, after 8 steps | 1,196 | 103 |
| one function with 300 shapes, after 300 steps | 526 | 455 |
| the same after 2,000 steps | 527 | 456 |

With 300 shapes, JAX itself takes 448 of these.

On one H200, four of 16 cores, driver 580.159, jax 0.11.2 (not among the tested versions), 2026-11-30, the time of JAX's
CUDA backend divided by Headrace's, by the clock (`HEADRACE_DEVICE=cuda python bench/jax_cases.py --reference cuda
--threads 4 --rounds 5 --seconds 0.4 --warm-up 2`). Both sides have the same precision. JAX rounds factors to TF32 by
default, Headrace does with `HEADRACE_TF32=all`; JAX keeps f32 with `JAX_DEFAULT_MATMUL_PRECISION=highest`:

| case | precision | JAX CUDA, ms | Headrace, ms | a call | the first call |
|---|---|---:|---:|---:|---:|
| CNN 28x28, train, batch 512 | TF32 | 1.592 | 0.960 | 1.66x | 2.7x |
| CNN 28x28, infer, batch 512 | TF32 | 0.410 | 0.231 | 1.78x | 9.3x |
| CNN 28x28, infer, batch 1 | TF32 | 0.306 | 0.071 | 4.28x | 2.3x |
| softshrink MLP, train, batch 64 | f32 | 0.207 | 0.146 | 1.42x | 8.7x |
| softshrink MLP, train, batch 64 | TF32 | 0.202 | 0.150 | 1.35x | 4.1x |
| GPT-2 small, train, 1 x 128 tokens | f32 | 7.486 | 7.160 | 1.05x | 37x |
| GPT-2 small, train, 1 x 128 tokens | TF32 | 5.704 | 5.512 | 1.03x | 10.7x |
| GPT-2 small, infer, 1 x 128 tokens | f32 | 1.950 | 1.727 | 1.13x | 23x |
| GPT-2 small, infer, 1 x 128 tokens | TF32 | 1.218 | 1.147 | 1.06x | 18x |

With JAX at its defaults and Headrace at its own, which keeps f32 in products, GPT-2's inference is slower here (1.138
and 1.843 ms, 2026-11-29). The smaller cases with both sides' defaults, beside the PyTorch device on the same H200
(`--rounds 4 --warm-up 1.5`, `python bench/gpu.py --cases 'cnn*,mlp*'`, torch 2.11, 2026-11-30), ms:

| case | JAX CUDA | Headrace | a call | Headrace in PyTorch, eager |
|---|---:|---:|---:|---:|
| CNN 28x28, train, batch 512 | 1.579 | 0.996 | 1.58x | 1.49 |
| CNN 28x28, infer, batch 512 | 0.431 | 0.236 | 1.83x | 0.374 |
| CNN 28x28, infer, batch 1 | 0.358 | 0.088 | 4.07x | 0.187 |
| softshrink MLP, train, batch 64 | 0.205 | 0.151 | 1.36x | 0.505 |
| softshrink MLP, infer, batch 1 | 0.110 | 0.055 | 2.01x | 0.047 |
| element-wise chain, 4,194,304 floats | 0.099 | 0.060 | 1.65x | |

A later build that day on another machine, GPT-2 with TF32 on both sides, in three rounds:

| case | JAX CUDA | Headrace | a call | the first call |
|---|---:|---:|---:|---:|
| CNN 28x28, train, batch 512 | 1.610 | 0.982 | 1.64x | 3.0x |
| CNN 28x28, infer, batch 512 | 0.390 | 0.215 | 1.82x | 9.9x |
| CNN 28x28, infer, batch 1 | 0.195 | 0.065 | 2.99x | 2.0x |
| softshrink MLP, train, batch 64 | 0.171 | 0.135 | 1.27x | 3.7x |
| softshrink MLP, infer, batch 1 | 0.083 | 0.038 | 2.16x | 1.3x |
| GPT-2 small, train, 1 x 128 tokens | 5.471 | 4.935 | 1.11x | 8.7x |
| GPT-2 small, infer, 1 x 128 tokens | 1.203 | 1.090 | 1.10x | 4.5x |

The build of 2026-12-01 on another machine, in the same way. torch's columns are GPT-2 of `bench/gpu.py` with 1 x 128
tokens, eager: the PyTorch device with `HEADRACE_TF32=all`, and torch 2.11 with CUDA, whose products keep f32. With f32
the PyTorch device takes 7.66 and 1.75:

| case | JAX CUDA | Headrace | a call | the first call | Headrace in PyTorch | torch CUDA |
|---|---:|---:|---:|---:|---:|---:|
| CNN 28x28, train, batch 512 | 1.606 | 0.951 | 1.69x | 3.3x | | |
| CNN 28x28, infer, batch 512 | 0.384 | 0.219 | 1.75x | 8.2x | | |
| CNN 28x28, infer, batch 1 | 0.238 | 0.068 | 3.51x | 2.5x | | |
| softshrink MLP, train, batch 64 | 0.251 | 0.144 | 1.74x | 3.8x | | |
| softshrink MLP, infer, batch 1 | 0.094 | 0.045 | 2.11x | 1.0x | | |
| GPT-2 small, train, 1 x 128 tokens | 5.692 | 5.454 | 1.04x | 8.5x | 6.607 | 23.7 |
| GPT-2 small, infer, 1 x 128 tokens | 1.174 | 1.040 | 1.13x | 4.3x | 1.165 | 3.594 |

GPT-2's training step with TF32, microseconds, medians of 300 steps, beside the GPU's time by CUPTI:

| part | us |
|---|---:|
| JAX, up to the call of the plug-in | 470 |
| the call: the program is recorded, its 150 results made | 290 |
| its commit; of it 40 are the launch of a graph of 550 kernels | 190 |
| the GPU: 550 kernels. JAX makes its arrays meanwhile (750) | 4,070 |
| the results' 150 events, and the thread that waits for them | 280 |

JAX's own 691 kernels take 4,020, and 5,960 in f32; Headrace's took 6,080 there, before products of long sums were left
to cuBLASLt, which saves 170. Half of a step is products at the same speed on both sides. Adam runs at the memory's
bandwidth.

A sample of JAX's own tests ran there, too, on `HEADRACE_DEVICE=cuda` with jax 0.11.2 and the tests of 0.10.2, 22 files,
one of one to three cases of each, in 174 s with 15 processes. Of the cases that JAX's CPU backend passes, 9,622 of
9,636 pass, 99.9 %: 1,330 of lax_numpy_operators_test, 1,274 of lax_test, 968 of lax_numpy_test, 822 of dtypes_test, 690
of lax_numpy_reducers_test. Eight more were running when their time was over. Of the 14 others twelve have floats of 6
bits, one checks a compiler's options and one the text of a program. Five functions of complex numbers, `arccos` among
them, miss that version's bounds on the CPU backend, too. In an earlier sample, of the tests of JAX's main branch, 12 of
6,528 failed because they read arrays by Python's buffer protocol, which is for memory of the host.

Loops of a million iterations on scalars, such as `sqrtm` of 100 x 100, take minutes on a GPU; JAX's tests run them on
CPUs alone."""


def wrapped(names):
    return "\n".join(textwrap.wrap(" ".join(sorted(names)), 118, break_on_hyphens=False))


def build():
    supported = set(ROW.findall((TABLES / "operations.def").read_text())) - {"call"}  # of the dialect func
    operations = set(OPERATIONS) | supported
    done, absent = (re.findall(rf"^{kind}\((\w+)", ENTRIES.read_text(), re.MULTILINE) for kind in ("DONE", "NONE"))
    return HEAD.format(
        speed=SPEED,
        count=len(supported),
        total=len(operations),
        supported=wrapped(supported),
        missing=wrapped(operations - supported),
        named=wrapped(NAMED.findall((TABLES / "names.def").read_text())),
        entries=len(done) + len(absent),
        done=len(done),
        absent=wrapped(absent),
    )


def main():
    text = build()
    if sys.argv[1:] == ["--check"]:
        if not DOC.exists() or DOC.read_text() != text:
            sys.exit("docs/jax.md is stale: run scripts/make_jax.py")
        return
    DOC.write_text(text)


if __name__ == "__main__":
    main()
