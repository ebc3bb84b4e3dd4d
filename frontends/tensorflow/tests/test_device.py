"""The device: its name, memory, copies, and what other versions of TensorFlow get."""

import os
import shutil
import subprocess
import sys

import headrace_tensorflow
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context, executor

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()
DEVICE = "/device:HEADRACE:0"


def test_is_listed():
    assert [device.name for device in tf.config.list_physical_devices("HEADRACE")] == ["/physical_device:HEADRACE:0"]


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dims", [(), (0,), (3, 0, 2), (2, 3), (1000, 7)])
def test_round_trip(dtype, dims):
    x = np.arange(np.prod(dims)).reshape(dims).astype(dtype)
    with tf.device(DEVICE):
        tensor = tf.constant(x)
        y = tf.identity(tensor)
    assert tensor.device.endswith("HEADRACE:0")
    assert (y.numpy() == x).all()
    assert y.numpy().dtype == x.dtype


@pytest.mark.skipif("HEADRACE_ONEDNN" not in os.environ, reason="HEADRACE_ONEDNN names no library")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_libraries_are_open_before_the_program_computes(threads):
    code = "import os, tensorflow as tf\ntf.constant(1.0).numpy()\n"
    code += "assert os.path.realpath(os.environ['HEADRACE_ONEDNN']) in open('/proc/self/maps').read()"
    variables = os.environ | {"HEADRACE_THREADS": threads}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=300)


@pytest.mark.skipif("HEADRACE_ONEDNN" not in os.environ, reason="HEADRACE_ONEDNN names no library")
def test_small_inference_loads_no_code_of_libraries():
    """Neither for results nor for timing: a first primitive touches 4 to 6 MB."""
    code = """
import os, re, keras, tensorflow as tf
layers = keras.layers
model = keras.Sequential([layers.Input((7, 7, 50)), layers.Conv2D(100, 5, padding="same"), layers.Flatten(),
                          layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10)])
run, x = tf.function(lambda x: model(x, training=False)), tf.ones((1, 7, 7, 50))
for i in range(300):
    run(x).numpy()
name, code = os.path.realpath(os.environ["HEADRACE_ONEDNN"]), 0
for text in re.split("(?m)^(?=[0-9a-f]+-)", open("/proc/self/smaps").read()):
    code += int(re.search(r"Rss: +([0-9]+)", text)[1]) if name in text and "r-xp" in text else 0
assert code < 1500, code
"""
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"HEADRACE_CACHE": "-"}, check=True, timeout=300)


def test_constants_of_arrays():
    """Places, dtypes and errors are those of TensorFlow's own conversion."""
    x = np.arange(6, dtype="float64").reshape(2, 3)
    for array in (x, x.T, x[:, ::2], x.astype(">f8"), np.array(2.5), x > 2, x.astype("complex64")):
        tensor = tf.constant(array)
        assert tensor.backing_device.endswith("HEADRACE:0")
        assert tensor.dtype == array.dtype.newbyteorder("=") and (tensor.numpy() == array).all()
        assert tensor.shape == array.shape
    assert tf.constant(x, tf.float32).dtype == tf.float32 and tf.constant(x, tf.float32).device.endswith("HEADRACE:0")
    assert tf.constant(x, shape=(3, 2)).numpy().tolist() == x.reshape(3, 2).tolist()
    assert tf.constant(x.astype("int32")).backing_device.endswith("CPU:0")
    assert tf.constant(np.array(["a", "b"])).numpy().tolist() == [b"a", b"b"]
    with tf.device("CPU"):
        assert tf.constant(x).device.endswith("CPU:0")
    with pytest.raises((TypeError, ValueError)):
        tf.constant(np.array(["a"]), tf.float32)


def test_variables_of_arrays_change_alone():
    x = np.ones((3, 4), "float32")
    constant = tf.constant(x)
    variable = tf.Variable(constant)
    variable.assign_add(constant)
    variable.assign_add(constant)
    assert (variable.numpy() == 3).all() and (constant.numpy() == 1).all() and (x == 1).all()


def test_special_values_keep_their_bits():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], "float32")
    with tf.device(DEVICE):
        assert tf.constant(x).numpy().tobytes() == x.tobytes()


def test_a_view_reads_its_own_part():
    with tf.device(DEVICE):
        x = tf.constant(np.arange(12, dtype="float32").reshape(4, 3)) * 2
        parts = tf.unstack(x), x[1:3], tf.reshape(x[2:], (3, 2))
    assert [part.numpy().tolist() for part in parts[0]] == [[0, 2, 4], [6, 8, 10], [12, 14, 16], [18, 20, 22]]
    assert parts[1].numpy().tolist() == [[6, 8, 10], [12, 14, 16]]
    assert parts[2].numpy().tolist() == [[12, 14], [16, 18], [20, 22]]
    assert type(x[1, 1].numpy()) is np.float32 and float(x[1, 1]) == 8 and int(x[3, 2]) == 22 and bool(x[0, 1])


def test_tensors_of_asynchronous_execution():
    """A tensor that is read need not exist yet."""
    runs = executor.new_executor(enable_async=True)
    with context.executor_scope(runs), tf.device(DEVICE):
        x = tf.ones((64, 64))
        for _ in range(20):
            x = x @ tf.eye(64) + 1
        assert (x.numpy() == 21).all()
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.matmul(x, tf.ones((3, 3))).numpy()
        runs.clear_error()


def test_host_changes_after_the_copy_do_not_count():
    x = np.ones(100_000, "float32")
    with tf.device(DEVICE):
        tensor = tf.constant(x)
    x[:] = 2
    assert (tensor.numpy() == 1).all()


def test_stats_count():
    headrace_tensorflow.reset_stats()
    with tf.device(DEVICE):
        tf.identity(tf.constant([1.0, 2.0])).numpy()
    assert headrace_tensorflow.stats()["bytes_copied_in"] == 8


def test_many_random_numbers_are_drawn_without_a_cut():
    """A commit among the operations of a draw would give memory to all its temporaries."""
    with tf.device(DEVICE):
        tf.zeros(3).numpy()
        headrace_tensorflow.reset_stats()
        assert np.isfinite(tf.random.normal((1 << 24,)).numpy()).all()
    assert headrace_tensorflow.stats()["commits"] <= 2
    assert headrace_tensorflow.stats()["bytes_moved"] < 30 * (4 << 24)


def test_memory_stats():
    with tf.device(DEVICE):
        x = tf.constant(np.ones(1 << 20, "float32"))
        x.numpy()
        assert headrace_tensorflow.memory_stats()["allocated_bytes"] >= 4 << 20


def test_uniform_numbers_take_no_temporaries():
    code = """
import headrace_tensorflow, tensorflow as tf
memory = headrace_tensorflow.memory_stats
tf.constant(1.0).numpy()
for bounds in [(0, 1, tf.bfloat16), (-1, 1, tf.float32), (None, None, tf.uint32), (0, 1, tf.float64), (3, 9, tf.int64)]:
    before = memory()["allocated_bytes"]
    x = tf.random.stateless_uniform([1 << 20], (1, 2), *bounds)
    tf.cast(x[:3], tf.float32).numpy()
    excess = memory()["allocated_bytes_peak"] - before - (x.dtype.size << 20)
    assert excess < 1 << 20, (x.dtype, excess)
    del x
"""
    subprocess.run([sys.executable, "-c", code], env=os.environ, check=True, timeout=300)


def test_memory_info():
    """TensorFlow's own counters, of which it knows nothing itself."""
    with tf.device(DEVICE):
        x = tf.constant(np.ones(1 << 20, "float32"))
        y = x * 2
        y.numpy()
        del y
    info = tf.config.experimental.get_memory_info("HEADRACE:0")
    assert info["peak"] >= info["current"] + (4 << 20) >= 8 << 20
    tf.config.experimental.reset_memory_stats(DEVICE)
    assert tf.config.experimental.get_memory_info("HEADRACE:0")["peak"] < info["peak"]
    for call in (tf.config.experimental.get_memory_info, tf.config.experimental.reset_memory_stats):
        with pytest.raises(ValueError, match="No matching devices"):
            call("HEADRACE:7")


def test_out_of_memory():
    """It is an error of the operation, or of the copy to the host, and the process goes on."""
    numbers = "tf.random.stateless_uniform((6000, 6000), (1, 2))"
    code = f"""
import tensorflow as tf
def fails(call):
    has_failed = False
    try:
        call()
    except tf.errors.ResourceExhaustedError:
        has_failed = True
    assert has_failed and (tf.ones(3) + 1).numpy().tolist() == [2, 2, 2]
variable = tf.Variable([1.0, 2.0])
function = tf.function(lambda x: tf.sort(x @ x, axis=1))
with tf.device("HEADRACE"):
    fails(lambda: tf.zeros((1 << 45,)))
    fails(lambda: tf.zeros((1 << 36,)).numpy())  # the host has no memory for it, and no failure stays
    fails(lambda: {numbers}.numpy())
    fails(lambda: function(tf.ones((5000, 5000))).numpy())
    fails(lambda: (variable * tf.reduce_sum({numbers} @ {numbers})).numpy())
    assert function(tf.ones((3, 3))).numpy()[0].tolist() == [3, 3, 3] and variable.numpy().tolist() == [1, 2]
"""
    variables = os.environ | {"HEADRACE_MEMORY_LIMIT": "64M"}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=300)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_another_wheel_is_refused_in_one_line(tmp_path):
    """The wheel tensorflow-cpu lacks functions. Here the process has no other ones than these."""
    stand_in = tmp_path / "tensorflow.so"
    source = 'const char *TF_Version(void) { return "2.19.1"; }'
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", stand_in], input=source, text=True, check=True)
    code = f"""
import ctypes
ctypes.CDLL({str(stand_in)!r}, ctypes.RTLD_GLOBAL)
plugin = ctypes.CDLL({str(headrace_tensorflow.library_path())!r})
plugin.TF_InitKernel()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("headrace:")]
    assert len(lines) == 1 and "the device needs the full wheel, not tensorflow-cpu" in lines[0], done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_another_version_is_refused_in_one_line(tmp_path):
    library = tmp_path / "version.so"
    source = 'const char *TF_Version(void) { return "2.18.1"; }'
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
    program = "import tensorflow as tf; print(tf.config.list_physical_devices('HEADRACE'), float(tf.constant(1.) + 2))"
    environment = os.environ | {"LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] 3.0"
    lines = [line for line in done.stderr.splitlines() if line.startswith("headrace:")]
    assert lines == ["headrace: no device HEADRACE: this is tensorflow 2.18.1; the device needs 2.19.1"]
