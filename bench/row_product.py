"""A plain matrix-vector product, row by row, in C: the speed at which this machine reads weights."""

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

SOURCE = r"""
#include <stddef.h>

typedef float vec __attribute__((vector_size(64), aligned(4)));
enum { LANES = sizeof(vec) / sizeof(float), COLUMNS = 768 };

void row_product(const float *weights, const float *x, float *y, ptrdiff_t rows) {
#pragma omp parallel for schedule(static)
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float *w = weights + row * COLUMNS;
    vec sums[4] = {{0}};
    for (int column = 0; column < COLUMNS; column += 4 * LANES) {
      for (int k = 0; k < 4; ++k) {
        sums[k] += *(const vec *)(w + column + k * LANES) * *(const vec *)(x + column + k * LANES);
      }
    }
    vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = 0;
    for (int lane = 0; lane < LANES; ++lane) {
      total += sum[lane];
    }
    y[row] = total;
  }
}
"""


def make(size: int) -> Callable[[], object]:
    """A function that reads `size` bytes of weights once, as rows of 768 floats, on OMP_NUM_THREADS threads. Raises
    OSError or CalledProcessError if there is no C compiler."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "row_product.c"), Path(folder, "row_product.so")
        source.write_text(SOURCE, encoding="utf-8")
        compiler = os.environ.get("CC", "cc")
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", library, source], check=True, capture_output=True)
        function = ctypes.CDLL(str(library)).row_product
    rows = size // (4 * 768)
    weights, x, y = torch.rand(rows, 768), torch.rand(768), torch.empty(rows)
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t]
    function.restype = None

    def sample():
        function(weights.data_ptr(), x.data_ptr(), y.data_ptr(), rows)
        return y

    return sample
