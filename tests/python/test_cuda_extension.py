"""Extensions in CUDA C++ (headrace/torch.h): a kernel as a step of the program, on the device's queue."""

import shutil

import pytest
import torch
from support import DEVICE, DRIVER

import headrace

pytestmark = [
    pytest.mark.skipif(DEVICE.type != "headrace" or DRIVER != "cuda", reason="a kernel of CUDA"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA's compiler is needed"),
]

SOURCE = r"""
#include <headrace/torch.h>
#include <torch/library.h>

#include <cuda_runtime.h>

__global__ void shrink(const float *in, float *out, int64_t n, float l) {
  int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) out[i] = in[i] > l ? in[i] - l : (in[i] < -l ? in[i] + l : 0);
}

at::Tensor softshrink(const at::Tensor &x, double l) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  headrace::call(headrace::stream(x), [l, n = x.numel()](const headrace::Arguments &arguments) {
    auto queue = static_cast<cudaStream_t>(arguments.queue());
    shrink<<<unsigned((n + 255) / 256), 256, 0, queue>>>(arguments.in<float>(0), arguments.out<float>(0), n, float(l));
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "the launch failed");
  }, {x}, {y}, {"softshrink_in_cuda"});
  return y;
}

TORCH_LIBRARY(headrace_cuda_test, m) { m.def("softshrink(Tensor x, float l) -> Tensor"); }
TORCH_LIBRARY_IMPL(headrace_cuda_test, PrivateUse1, m) { m.impl("softshrink", &softshrink); }
"""


@pytest.fixture(scope="module")
def softshrink(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    (folder / "softshrink.cu").write_text(SOURCE)
    headrace.cpp_extension.load(
        "headrace_cuda_test", [str(folder / "softshrink.cu")], build_directory=str(folder), is_python_module=False
    )
    return torch.ops.headrace_cuda_test.softshrink


@pytest.mark.parametrize("form", ["dense", "strided", "transposed"])
def test_a_kernel_is_a_step_between_operations(softshrink, form):
    host = torch.randn(300, 70)
    x = host.to(DEVICE)
    forms = {"dense": lambda t: t, "strided": lambda t: t[::2, 3:40:3], "transposed": lambda t: t.t()}
    before = torch.headrace.stats()["commits"]
    y = softshrink(forms[form](x) * 2, 0.5) + 1
    assert torch.headrace.stats()["commits"] == before
    expected = torch.nn.functional.softshrink(forms[form](host) * 2, 0.5) + 1
    torch.testing.assert_close(y.cpu(), expected, rtol=0, atol=0)


def test_many_calls_repeat_one_program(softshrink):
    x = torch.randn(5000, device=DEVICE)
    expected = x.cpu()
    for step in range(20):
        x = softshrink(x * 1.5, 0.01 * step)
        expected = torch.nn.functional.softshrink(expected * 1.5, 0.01 * step)
        torch.headrace.synchronize()
    torch.testing.assert_close(x.cpu(), expected)
