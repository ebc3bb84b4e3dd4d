"""Extensions in C++ (headrace/torch.h): functions as steps of a program, torch's machinery, errors, threads."""

import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch
from support import DEVICE, DRIVER, ROOT, assert_same

import headrace

pytestmark = [
    pytest.mark.skipif(DEVICE.type != "headrace", reason="an interface of the device"),
    pytest.mark.skipif(DRIVER != "cpu", reason="the functions compute on the host"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="a compiler of C++ is needed"),
]

SOURCE = r"""
#include <headrace/torch.h>
#include <torch/library.h>

#include <atomic>
#include <stdexcept>

using at::Tensor;
using headrace::Arguments;

template <class T> Tensor apply(const Tensor &x, const char *name, T (*f)(T)) {
  Tensor y = at::empty(x.sizes(), x.options());
  auto run = [f, n = x.numel()](const Arguments &arguments) {
    const T *in = arguments.in<T>(0);
    T *out = arguments.out<T>(0);
    for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
  };
  headrace::call(headrace::stream(x), run, {x}, {y}, {name});
  return y;
}
static float shrink(float x) { return x > 0.5f ? x - 0.5f : (x < -0.5f ? x + 0.5f : 0); }
Tensor softshrink(const Tensor &x) {
  switch (x.scalar_type()) {
    case at::kBool: return apply<bool>(x, "negate", [](bool b) { return !b; });
    case at::kLong: return apply<int64_t>(x, "grow", [](int64_t v) { return v + 1; });
    case at::kHalf: return apply<c10::Half>(x, "halve", [](c10::Half v) { return c10::Half(float(v) / 2); });
    case at::kComplexDouble:
      return apply<c10::complex<double>>(x, "turn", [](c10::complex<double> v) { return v * v; });
    default: return apply<float>(x, "softshrink_in_cpp", &shrink);
  }
}
void into(const Tensor &x, const Tensor &y) {
  headrace::call(headrace::stream(x), [n = x.numel()](const Arguments &arguments) {
    for (int64_t i = 0; i < n; ++i) arguments.out<float>(0)[i] = shrink(arguments.in<float>(0)[i]);
  }, {x}, {y}, {"into"});
}
void accumulate(const Tensor &x, const Tensor &sum) {
  headrace::call(headrace::stream(x), [n = x.numel()](const Arguments &arguments) {
    for (int64_t i = 0; i < n; ++i) arguments.out<float>(0)[i] += arguments.in<float>(0)[i];
  }, {x}, {sum}, {"accumulate", 1});
}
Tensor fail(const Tensor &x, int64_t how) {
  Tensor y = at::empty(x.sizes(), x.options());
  headrace::call(headrace::stream(x), [how](const Arguments &arguments) {
    if (how == 0) throw std::runtime_error("not today");
    if (how == 1) TORCH_CHECK_INDEX(false, "a wrong place");
    if (how == 2) (void)arguments.in<double>(0);
    if (how == 3) (void)arguments.in<float>(1);
    throw 7;
  }, {x}, {y}, {"fail"});
  return y;
}
static std::atomic<int64_t> calls{0};
void count(const Tensor &x) {
  headrace::call(headrace::stream(x), [](const Arguments &) { ++calls; }, {}, {});
}
int64_t counted() { return calls.exchange(0); }
Tensor multiply(const Tensor &x, double by) {
  Tensor y = at::empty(x.sizes(), x.options());
  headrace::record(HR_OP_MUL, {x, by}, {y});
  return y;
}
double look(const Tensor &x) {
  headrace::commit();
  headrace::synchronize();
  return headrace::address<const float>(x)[x.numel() > 1 ? x.stride(0) : 0];
}
int64_t elements(const Tensor &x) {
  headrace::View view = headrace::view(x);
  return view.get().rank == 0 ? 1 : view.get().dims[0];
}
double crash(const Tensor &x) { return x.const_data_ptr<float>()[1]; }
Tensor meta(const Tensor &x) { return at::empty(x.sizes(), x.options()); }

TORCH_LIBRARY(headrace_cpp, m) {
  m.def("softshrink(Tensor x) -> Tensor");
  m.def("into(Tensor x, Tensor(a!) y) -> ()");
  m.def("accumulate(Tensor x, Tensor(a!) sum) -> ()");
  m.def("fail(Tensor x, int how) -> Tensor", &fail);
  m.def("count(Tensor x) -> ()", &count);
  m.def("counted() -> int", &counted);
  m.def("multiply(Tensor x, float by) -> Tensor", &multiply);
  m.def("look(Tensor x) -> float", &look);
  m.def("elements(Tensor x) -> int", &elements);
  m.def("crash(Tensor x) -> float", &crash);
  m.def("direct(Tensor x) -> Tensor", &softshrink);
}
TORCH_LIBRARY_IMPL(headrace_cpp, PrivateUse1, m) {
  m.impl("softshrink", &softshrink);
  m.impl("into", &into);
  m.impl("accumulate", &accumulate);
}
TORCH_LIBRARY_IMPL(headrace_cpp, Meta, m) { m.impl("softshrink", &meta); }
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    (folder / "operators.cpp").write_text(SOURCE)
    paths = os.environ["PATH"]
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + paths  # ninja's
    try:
        headrace.cpp_extension.load(
            "headrace_cpp", str(folder / "operators.cpp"), build_directory=str(folder), is_python_module=False,
            extra_cflags=["-O1"],
        )  # fmt: skip
    finally:
        os.environ["PATH"] = paths
    torch.ops.headrace_cpp.library = str(folder / "headrace_cpp.so")
    return torch.ops.headrace_cpp


def expected(x):
    return torch.nn.functional.softshrink(x, 0.5)


def test_a_function_runs_in_order_with_its_neighbours(ops):
    x = torch.randn(1000)
    d = x.to(DEVICE)
    torch.headrace.synchronize()
    before = torch.headrace.stats()
    z = (ops.softshrink(d * 2) + 1).tanh()
    assert torch.headrace.stats()["commits"] == before["commits"]
    z = z.cpu()
    assert torch.headrace.stats()["commits"] == before["commits"] + 1
    assert_same(z, (expected(x * 2) + 1).tanh())


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[:1].expand(8, 12),
        lambda x: x[0, 0],
        lambda x: x[:, :0],
        lambda x: x.flip(0),
    ],
)
def test_operands_have_any_strides(ops, form):
    x = torch.randn(8, 12)
    d = form(x.to(DEVICE))
    assert_same(ops.softshrink(d).cpu(), expected(form(x)))
    whole = torch.full((30, 12), 7.0, device=DEVICE)
    y = whole[4:].as_strided(d.shape, (1, d.shape[0]) if d.dim() == 2 else ())
    ops.into(d, y)
    assert_same(y.cpu(), expected(form(x)))
    assert whole[:4].eq(7).all()


def test_dtypes(ops):
    b = torch.tensor([True, False])
    assert ops.softshrink(b.to(DEVICE)).tolist() == [False, True]
    mixed = torch.tensor([2, 0], dtype=torch.uint8, device=DEVICE).view(torch.bool)
    assert ops.softshrink(mixed).tolist() == [False, True]
    assert ops.softshrink(torch.tensor([1, -5], device=DEVICE)).tolist() == [2, -4]
    assert ops.softshrink(torch.tensor([1.0, 3.0], device=DEVICE).half()).tolist() == [0.5, 1.5]
    c = torch.tensor([1 + 2j, 3j], dtype=torch.complex128)
    assert_same(ops.softshrink(c.to(DEVICE).conj()).cpu(), c.conj() * c.conj())


def test_outputs_that_are_inputs_and_updated_ones(ops):
    x = torch.randn(10)
    d = x.to(DEVICE)
    ops.into(d[:9], d[1:])
    assert_same(d.cpu(), torch.cat([x[:1], expected(x[:9])]))
    total = torch.ones(10, device=DEVICE)
    version = total._version
    for _ in range(3):
        ops.accumulate(torch.arange(10.0, device=DEVICE), total)
    assert total._version > version
    assert_same(total.cpu(), 3 * torch.arange(10.0) + 1)


def test_calls_without_operands_run_once_each(ops):
    x = torch.ones(1, device=DEVICE)
    ops.counted()
    for _ in range(5):
        ops.count(x)
    torch.headrace.synchronize()
    assert ops.counted() == 5


@pytest.mark.parametrize(
    "how, error, message",
    [
        (0, RuntimeError, "fail: not today"),
        (1, IndexError, "fail: a wrong place"),
        (2, RuntimeError, "fail: input 0: expected Double, found Float"),
        (3, RuntimeError, "fail: "),
        (4, RuntimeError, "fail: an exception that is no std::exception"),
    ],
)
def test_errors_of_a_function_come_with_the_wait(ops, how, error, message):
    x = torch.ones(3, device=DEVICE)
    y = ops.fail(x, how) + 1
    with pytest.raises(error, match=message):
        y.cpu()
    assert ops.softshrink(x).tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(error, match=message):
        (y + 1).cpu()


def test_arguments_are_checked(ops):
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(ValueError, match="stream: expected a tensor of a headrace device, found one of cpu"):
        ops.direct(torch.ones(3))
    with pytest.raises(RuntimeError, match="output 0 of dims \\[3\\] is expanded along dim 0"):
        ops.into(x, x[:1].expand(3))
    with pytest.raises(TypeError, match="address: expected a tensor of Float, found one of Double"):
        ops.look(x.double())
    with pytest.raises(RuntimeError, match="Batching rule not implemented"):
        torch.vmap(ops.elements)(torch.ones(2, 3, device=DEVICE))


def test_records_views_and_addresses(ops):
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    assert ops.multiply(x, 2.5).tolist() == (torch.arange(6.0).view(2, 3) * 2.5).tolist()
    assert ops.look((x + 1)[1]) == 5 and ops.look((x + 1).t()) == 2 and ops.look(x[1, 2]) == 5
    assert ops.elements(x) == 2 and ops.elements(x[0, 0]) == 1


def test_calls_of_several_threads(ops):
    results = [None] * 4

    def work(k):
        x = torch.full((50,), float(k), device=DEVICE)
        for _ in range(20):
            x = ops.softshrink(x + 1)
        results[k] = x.cpu()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert_same(results[k], torch.full((50,), k + 10.0))


class Softshrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ops):
        y = ops.softshrink(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (y != 0), None


def test_gradients_by_an_autograd_function(ops):
    x = torch.randn(64)
    d = x.to(DEVICE).requires_grad_()
    Softshrink.apply(d, ops).square().sum().backward()
    x.requires_grad_()
    expected(x).square().sum().backward()
    assert_same(d.grad.cpu(), x.grad)


def test_under_torch_compile(ops):
    @torch.compile(backend="headrace", fullgraph=True)
    def step(x):
        return ops.softshrink(x * 2) + 1

    for n in (5, 64, 5):
        x = torch.randn(n)
        for _ in range(2):
            assert_same(step(x.to(DEVICE)).cpu(), expected(x * 2) + 1)


def test_in_a_custom_operator(ops):
    @torch.library.custom_op("headrace_test::shrink_in_cpp", mutates_args=())
    def shrink(x: torch.Tensor) -> torch.Tensor:
        return ops.softshrink(x)

    shrink.register_fake(lambda x: torch.empty_like(x))
    x = torch.randn(4, 4)
    torch.library.opcheck(shrink, (x.to(DEVICE),))
    torch.library.opcheck(ops.softshrink.default, (x.to(DEVICE),))
    assert_same(shrink(x.to(DEVICE)).cpu(), expected(x))


def test_vmap_by_torchs_loop(ops):
    x = torch.randn(3, 4)
    assert_same(torch.vmap(ops.softshrink)(x.to(DEVICE)).cpu(), expected(x))


def test_profiles_name_the_function(ops):
    x = torch.randn(100, device=DEVICE)
    with torch.headrace.profiler.profile():
        ops.softshrink(x).cpu()
    assert "softshrink_in_cpp 100 by functions" in torch.headrace.profiler.tables()


def test_a_dereferenced_handle_has_a_message(ops):
    program = (
        "import torch, headrace.torch\n"
        f"torch.ops.load_library({ops.library!r})\n"
        "torch.ops.headrace_cpp.crash(torch.ones(1000, device='headrace')[3:])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -11, done.stderr
    assert "the data_ptr() of a tensor was dereferenced" in done.stderr
    assert "byte 16 of a buffer of 4000 bytes of device cpu" in done.stderr
    assert "headrace::address" in done.stderr


def test_the_example(tmp_path):
    program = "import headrace.torch, runpy; runpy.run_path('examples/cpp_extension.py', run_name='__main__')"
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    environment = os.environ | {"TORCH_EXTENSIONS_DIR": str(tmp_path), "PATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 commit" in done.stdout and "equal: True True" in done.stdout, done.stdout
