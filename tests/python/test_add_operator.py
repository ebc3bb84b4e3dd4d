"""An operator is one row of ops.def, with its gradient in gradients.def: a copy of the core with one more row infers,
records, interprets and compiles it, and one row of map.def gives PyTorch its kernel (docs/add-an-operator.md)."""

import concurrent.futures
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = (
    "HR_POINTWISE(TRIPLE_SUM, triple_sum, 2, SAME, IF, EXACT, CHEAP, NONE, 3 * (a + b), K(3) * (a + b), 0,"
    ' "3 * (a + b), of a test")\n'
)
GRADIENT = 'HR_GRADIENT(TRIPLE_SUM, "3 * g", "3 * g")\n'
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/stream.h"

enum { COUNT = 1000 };
static const int64_t dims[1] = {COUNT}, strides[1] = {1};

static void must(hr_status status) {
  if (status != NULL) {
    printf("%s\n", hr_status_message(status));
    exit(1);
  }
}

static hr_view view(hr_device *device, hr_dtype dtype) {
  hr_view v = {.dtype = dtype, .rank = 1, .dims = dims, .strides = strides};
  must(hr_buffer_create(device, COUNT * hr_dtype_size(dtype), &v.buffer));
  return v;
}

static void infer(void) {
  hr_tensor_type in[2] = {{.dtype = HR_DTYPE_I32, .rank = 2, .dims = {4, 1}},
                          {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {3}}};
  hr_tensor_type out = {.dtype = HR_DTYPE_NONE};
  must(hr_op_infer(HR_OP_TRIPLE_SUM, NULL, 2, in, 1, &out));
  printf("infer %s %lld %lld\n", hr_dtype_name(out.dtype), (long long)out.dims[0], (long long)out.dims[1]);
}

/* y = -triple_sum(x, 5), in one fused kernel. */
static void run(hr_device *device, hr_stream *stream, hr_dtype dtype, const void *values, void *results) {
  hr_scalar five = hr_scalar_i64(5);
  hr_view inputs[2] = {view(device, dtype), {.scalar = &five, .dtype = HR_DTYPE_I64}}, t = view(device, dtype),
          y = view(device, dtype);
  must(hr_stream_write(stream, &inputs[0], values));
  must(hr_stream_record(stream, HR_OP_TRIPLE_SUM, NULL, 2, inputs, 1, &t));
  must(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &t, 1, &y));
  hr_buffer_release(t.buffer);
  must(hr_stream_read(stream, &y, results));
  hr_buffer_release(inputs[0].buffer);
  hr_buffer_release(y.buffer);
}

int main(void) {
  hr_device *device;
  hr_stream *stream;
  hr_stats stats = {0};
  float x[COUNT], y[COUNT];
  int64_t i[COUNT], j[COUNT];
  int wrong = 0;
  infer();
  must(hr_device_open("cpu", &device));
  must(hr_stream_create(device, &stream));
  for (int k = 0; k < COUNT; ++k) {
    x[k] = (float)k / 7, i[k] = 1000 - k;
  }
  run(device, stream, HR_DTYPE_F32, x, y);
  run(device, stream, HR_DTYPE_I64, i, j);
  for (int k = 0; k < COUNT; ++k) {
    wrong += y[k] != -(3 * (x[k] + 5)) || j[k] != -(3 * (i[k] + 5));
  }
  hr_stream_stats(stream, &stats);
  printf("wrong %d, interpreted %s\n", wrong, stats.kernels_interpreted > 0 ? "yes" : "no");
  hr_stream_release(stream);
  hr_device_release(device);
  return wrong != 0;
}
"""
FLAGS = [
    "-std=gnu11",
    "-O0",
    "-w",
    "-fwrapv",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-D_GNU_SOURCE",
    "-Iinclude",
    "-Isrc",
]
FLAGS += ["-march=x86-64-v3"] if platform.machine() in ("x86_64", "AMD64") else []


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A copy of the core with the row after all others, and a program that uses it."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("core")
    for name in ("src", "include", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    with open(folder / "src/core/ops/ops.def", "a") as table:
        table.write(ROW)
    with open(folder / "src/transform/gradients.def", "a") as table:
        table.write(GRADIENT)
    subprocess.run([sys.executable, "scripts/make_op_header.py"], cwd=folder, check=True)
    (folder / "program.c").write_text(PROGRAM)
    tests = ("_test.c", "_bench.c", "_fuzz.c")
    sources = [path for path in sorted((folder / "src").rglob("*.c")) if not path.name.endswith(tests)]
    objects = [path.with_suffix(".o") for path in sources + [folder / "program.c"]]

    def build(source):
        subprocess.run([compiler, *FLAGS, "-c", source, "-o", source.with_suffix(".o")], cwd=folder, check=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(build, sources + [folder / "program.c"]))
    subprocess.run([compiler, "-o", "program", *objects, "-lm", "-ldl", "-lpthread"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(("jit", "interpreted"), [("off", "yes"), ("wait", "no")])
def test_one_row_is_an_operator(core, jit, interpreted):
    environment = dict(os.environ, HEADRACE_JIT=jit, HEADRACE_CACHE="-")
    done = subprocess.run([core / "program"], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"infer f32 4 3\nwrong 0, interpreted {interpreted}\n"


def test_one_row_of_the_map_is_a_kernel(core, tmp_path):
    pytest.importorskip("torchgen")
    frontend = ROOT / "frontends/torch"
    rows = [line for line in (frontend / "map.def").read_text().splitlines() if not line.startswith("hypot ")]
    (tmp_path / "map.def").write_text("\n".join(rows) + "\nhypot : same TRIPLE_SUM(self, other)\n")
    kernels = tmp_path / "kernels.cpp"
    subprocess.run([sys.executable, frontend / "generate.py", tmp_path / "map.def", kernels], check=True)
    assert "HR_OP_TRIPLE_SUM" in kernels.read_text()
    assert "HR_OP_TRIPLE_SUM" in (core / "include/headrace/op.h").read_text()
