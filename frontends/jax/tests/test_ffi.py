"""Functions of XLA's FFI: buffers, attributes, errors, memory, states, layouts."""

import ctypes
import gc
import shutil
import subprocess
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from headrace_jax import _ffi

SOURCE = r"""#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error Scale(float factor, int64_t shift, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = factor * x.typed_data()[i] + static_cast<float>(shift);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale, Scale,
                              ffi::Ffi::Bind()
                                  .Attr<float>("factor")
                                  .Attr<int64_t>("shift")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error Describe(std::string_view text, ffi::Span<const int32_t> numbers, bool flag, ffi::Dictionary more,
                           ffi::AnyBuffer x, ffi::ResultBuffer<ffi::S64> y) {
  int64_t *out = y->typed_data();
  out[0] = static_cast<int64_t>(text.size()), out[1] = numbers.size(), out[2] = numbers[numbers.size() - 1];
  out[3] = flag, out[4] = static_cast<int64_t>(x.element_type()), out[5] = x.dimensions().size();
  out[6] = static_cast<int64_t>(x.size_bytes()), out[7] = *more.get<int64_t>("a");
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(describe, Describe,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("text")
                                  .Attr<ffi::Span<const int32_t>>("numbers")
                                  .Attr<bool>("flag")
                                  .Attr<ffi::Dictionary>("more")
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::Buffer<ffi::S64>>());

static ffi::Error Fail() { return ffi::Error(ffi::ErrorCode::kInvalidArgument, "this fails always"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(fail, Fail, ffi::Ffi::Bind());

static ffi::Error Memory(ffi::ScratchAllocator scratch, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y) {
  std::optional<void *> room = scratch.Allocate(x.size_bytes(), 64);
  if (!room.has_value() || reinterpret_cast<uintptr_t>(*room) % 64 != 0) {
    return ffi::Error::Internal("no memory");
  }
  std::copy_n(static_cast<char *>(x.untyped_data()), x.size_bytes(), static_cast<char *>(*room));
  std::copy_n(static_cast<char *>(*room), x.size_bytes(), static_cast<char *>(y->untyped_data()));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(memory, Memory,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

struct Counter {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  int64_t calls = 0;
};
static int64_t ended = 0;
ffi::TypeId Counter::id = {};
ffi::TypeInfo Counter::info = {sizeof(XLA_FFI_TypeInfo), nullptr, [](void *counter) {
                                 delete static_cast<Counter *>(counter);
                                 ++ended;
                               }};
extern "C" void *counter_type() { return &Counter::id; }
extern "C" void *counter_info() { return &Counter::info; }
extern "C" int64_t counters_ended() { return ended; }

static ffi::ErrorOr<std::unique_ptr<Counter>> Begin() { return std::make_unique<Counter>(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(begin, Begin, ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(initialize, Begin, ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
static ffi::ErrorOr<std::unique_ptr<Counter>> Refuse() { return ffi::Unexpected(ffi::Error::Internal("no state")); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(refuse, Refuse, ffi::Ffi::BindInstantiate());
static ffi::Error Count(Counter *counter, ffi::ResultBuffer<ffi::S64> y) {
  y->typed_data()[0] = ++counter->calls;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(count, Count, ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::Buffer<ffi::S64>>());

static ffi::Error One(ffi::ResultBuffer<ffi::S64> y) {
  y->typed_data()[0] = 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(one, One, ffi::Ffi::Bind().Ret<ffi::Buffer<ffi::S64>>());

enum { OFF, ARMED, WAITING };
static std::atomic<int> waiting{OFF};
extern "C" int waiting_state() { return waiting; }
extern "C" void set_waiting(int state) { waiting = state; }
static ffi::Error Wait(Counter *counter, ffi::ResultBuffer<ffi::S64> y) {
  int64_t before = ended;
  waiting = waiting == ARMED ? WAITING : OFF;
  while (waiting == WAITING) {
    std::this_thread::yield();
  }
  y->typed_data()[0] = ended - before;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(wait_long, Wait,
                              ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::Buffer<ffi::S64>>());
"""
STAGES = {
    "test_count": {"instantiate": "begin", "execute": "count"},
    "test_wait": {"instantiate": "begin", "execute": "wait_long"},
    "test_initialize": {"initialize": "initialize", "execute": "one"},
    "test_refuse": {"instantiate": "refuse", "execute": "count"},
}
F32 = jax.ShapeDtypeStruct((2, 3), np.float32)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("ffi")
    source, path = folder / "functions.cc", str(folder / "libfunctions.so")
    source.write_text(SOURCE)
    command = [compiler, "-std=c++17", "-w", "-fPIC", "-shared", "-I", jax.ffi.include_dir(), str(source), "-o", path]
    subprocess.run(command, check=True, timeout=300)
    functions = ctypes.CDLL(path)
    for name, platform in (("scale", "cpu"), ("describe", "headrace"), ("fail", "headrace"), ("memory", "cpu")):
        jax.ffi.register_ffi_target(f"test_{name}", jax.ffi.pycapsule(getattr(functions, name)), platform=platform)
    for name in ("counter_type", "counter_info"):
        getattr(functions, name).restype = ctypes.c_void_p
    kind, info = jax.ffi.pycapsule(functions.counter_type()), jax.ffi.pycapsule(functions.counter_info())
    jax.ffi.register_ffi_type("test_counter", {"type_id": kind, "type_info": info}, platform="headrace")
    for name, stages in STAGES.items():
        stages = {stage: jax.ffi.pycapsule(getattr(functions, function)) for stage, function in stages.items()}
        jax.ffi.register_ffi_target(name, stages, platform="headrace")
    functions.counters_ended.restype = ctypes.c_int64
    return functions


def scale(x, **options):
    return jax.ffi.ffi_call("test_scale", jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(
        x, factor=np.float32(2), shift=3
    )


def test_a_function_that_is_registered_for_the_cpu():
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: scale(x + 1) * 2)(X)), ((X + 1) * 2 + 3) * 2)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: scale(x.T))(X)), X.T * 2 + 3)
    np.testing.assert_array_equal(np.asarray(scale(jnp.zeros((0, 3), np.float32))), np.zeros((0, 3)))


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap(method):
    got = jax.vmap(lambda x: scale(x, vmap_method=method))(X)
    np.testing.assert_array_equal(np.asarray(got), X * 2 + 3)


def test_attributes_and_buffers():
    call = jax.ffi.ffi_call("test_describe", jax.ShapeDtypeStruct((8,), np.int64))
    got = call(np.zeros((2, 0, 5), np.float16), text="four", numbers=np.array([1, 2, 7], np.int32), flag=True,
               more={"a": 9})
    assert np.asarray(got).tolist() == [4, 3, 7, 1, 10, 3, 0, 9]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, None, [1]])
def test_attributes_that_have_no_dtype_are_refused(value):
    with pytest.raises((OverflowError, NotImplementedError), match="too large|dtype object|a list"):
        _ffi._Names({"value": value})


def test_failures_name_the_function():
    with pytest.raises(jax.errors.JaxRuntimeError, match="test_fail: this fails always"):
        jax.block_until_ready(jax.ffi.ffi_call("test_fail", ())() or jax.ffi.ffi_call("test_fail", F32)())
    with pytest.raises(jax.errors.JaxRuntimeError, match="Attribute|attribute|argument"):
        jax.block_until_ready(jax.ffi.ffi_call("test_scale", F32)(X, factor=np.float32(2)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="test_nothing"):
        jax.block_until_ready(jax.ffi.ffi_call("test_nothing", F32)(X))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_memory_of_dtypes(dtype):
    x = jnp.asarray(X, dtype)
    got = jax.jit(jax.ffi.ffi_call("test_memory", jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(got), np.asarray(x))


def test_layouts_and_aliases():
    turned = jax.ffi.ffi_call("test_memory", jax.ShapeDtypeStruct((2, 3), np.float32), input_layouts=[(1, 0)],
                              output_layouts=(1, 0))
    np.testing.assert_array_equal(np.asarray(turned(X)), X)
    aliased = jax.ffi.ffi_call("test_memory", F32, input_output_aliases={0: 0})
    np.testing.assert_array_equal(np.asarray(aliased(X)), X)
    shuffled = jax.ffi.ffi_call("test_memory", F32, input_layouts=[(1, 0)])
    np.testing.assert_array_equal(np.asarray(shuffled(X)), X.T.reshape(2, 3))


def test_a_state_lives_as_long_as_its_program(library):
    like = jax.ShapeDtypeStruct((1,), np.int64)
    begun = library.counters_ended()

    def run():
        functions = [jax.jit(lambda: jax.ffi.ffi_call("test_count", like, has_side_effect=True)()) for _ in range(2)]
        for k in range(1, 4):
            assert [int(function()[0]) for function in functions] == [k, k]

    run()
    jax.clear_caches()
    gc.collect()
    assert library.counters_ended() == begun + 2


def test_a_state_outlives_calls_that_run(library):
    off, armed, waits = range(3)
    calls, begun = [], library.counters_ended()
    function = jax.jit(lambda: jax.ffi.ffi_call("test_wait", jax.ShapeDtypeStruct((1,), np.int64))())
    assert int(function()[0]) == 0
    library.set_waiting(armed)
    thread = threading.Thread(target=lambda: calls.append(int(function()[0])))
    thread.start()
    while library.waiting_state() != waits:
        time.sleep(0.001)
    jax.clear_caches()
    gc.collect()
    library.set_waiting(off)
    thread.join()
    assert calls == [0]
    jax.block_until_ready(scale(jnp.ones(7, np.float32)))  # a new callback ends those that no call has any more
    assert library.counters_ended() == begun + 1


def test_states_of_a_call_end_with_it(library):
    function = jax.jit(lambda: jax.ffi.ffi_call("test_initialize", jax.ShapeDtypeStruct((1,), np.int64))())
    begun = library.counters_ended()
    assert [int(function()[0]) for _ in range(3)] == [1, 1, 1]
    assert library.counters_ended() == begun + 3


def test_a_call_without_its_state_keeps_nothing():
    before = len(_ffi._contexts)
    with pytest.raises(RuntimeError, match="test_refuse: no state"):
        jax.ffi.ffi_call("test_refuse", jax.ShapeDtypeStruct((1,), np.int64))()
    assert len(_ffi._contexts) == before
