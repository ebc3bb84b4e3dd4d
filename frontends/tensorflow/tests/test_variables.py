"""Variables and the optimizers that TensorFlow has kernels for."""

import threading

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf
from table import rows
from tensorflow.python.framework import op_def_registry

DTYPES = {name: dtypes for name, _, dtypes in rows() if name.startswith(("Assign", "Resource"))}
UPDATES = [
    pytest.param(name, dtype, id=f"{name}-{dtype.name}")
    for name in ("AssignAddVariableOp", "AssignSubVariableOp")
    for dtype in DTYPES[name]
    if dtype != tf.int32  # TensorFlow's variables of i32 are in the host's memory
]


def variable(device, x):
    with tf.device(device):
        return tf.Variable(x)


@pytest.mark.parametrize(("name", "dtype"), UPDATES)
def test_updates(name, dtype):
    rng = np.random.default_rng(5)
    start, step = (rng.integers(0, 9, (3, 2)).astype(dtype.as_numpy_dtype) for _ in range(2))
    results = []
    for device in ["CPU", "HEADRACE"]:
        target = variable(device, start)
        before = target.read_value()
        for _ in range(2):
            getattr(tf.raw_ops, name)(resource=target.handle, value=tf.constant(step))
        assert device in target.device
        results.append((target.numpy(), before.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_value_that_was_read_keeps_its_contents():
    target = variable("HEADRACE", np.zeros(4, "float32"))
    first = tf.identity(target)
    target.assign_add(tf.ones(4))
    second = target.read_value()
    target.assign(tf.fill([4], 7.0))
    assert first.numpy().tolist() == [0] * 4
    assert second.numpy().tolist() == [1] * 4
    assert target.numpy().tolist() == [7] * 4


def test_assignment_shares_no_memory():
    one, other = variable("HEADRACE", np.zeros(3, "float32")), variable("HEADRACE", np.ones(3, "float32"))
    one.assign(other)
    one.assign_add(tf.ones(3))
    assert other.numpy().tolist() == [1, 1, 1]
    assert one.numpy().tolist() == [2, 2, 2]


def test_updates_copy_once():
    """A tensor that a copy leaves behind would make the variable shared for ever."""
    target, one = variable("HEADRACE", np.zeros(1 << 18, "float32")), tf.ones(1 << 18)
    for _ in range(30):
        value = target.read_value()
        target.assign_add(one)
        assert float(target[0]) == float(value[0]) + 1
    headrace_tensorflow.reset_stats()
    for _ in range(20):
        target.assign_add(one)
    assert headrace_tensorflow.stats()["operations"] <= 22
    del value
    assert headrace_tensorflow.memory_stats()["allocated_bytes"] < 20 << 20


def test_functions_of_several_threads():
    count = variable("HEADRACE", np.zeros(16, "float32"))

    @tf.function
    def step(x):
        for _ in range(50):
            count.assign_add(tf.ones(16))
        for _ in range(4):
            x = tf.nn.relu(tf.matmul(x, x)) * 0.1 + 1.0
        return tf.reduce_sum(x)

    inputs = [np.full((16, 16), 0.1 * i, "float32") for i in range(8)]
    wanted = [float(step(tf.constant(x))) for x in inputs]
    found = [[] for _ in inputs]

    def work(i):
        found[i].extend(float(step(tf.constant(inputs[i]))) for _ in range(20))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[want] * 20 for want in wanted]
    assert count.numpy().tolist() == [50 * 168.0] * 16


def test_lists_of_tensors():
    with tf.device("HEADRACE"):
        x = tf.raw_ops.TensorListFromTensor(tensor=tf.constant([[1.0, 2.0], [3.0, 4.0]]), element_shape=[2])
        total = tf.raw_ops.AddN(inputs=[x, x, x])
        zeros = tf.raw_ops.ZerosLike(x=x)
        stacks = [
            tf.raw_ops.TensorListStack(input_handle=y, element_shape=[2], element_dtype=tf.float32).numpy().tolist()
            for y in (total, zeros)
        ]
    assert stacks == [[[3, 6], [9, 12]], [[0, 0], [0, 0]]]


SCATTERS = [
    pytest.param(name, dtype, id=f"{name}-{dtype.name}")
    for name in DTYPES
    if name.startswith("ResourceScatter") and "Nd" not in name
    for dtype in DTYPES[name]
    if dtype != tf.int32
]


@pytest.mark.parametrize(("name", "dtype"), SCATTERS)
def test_scatters(name, dtype):
    rng = np.random.default_rng(7)
    start = rng.integers(0, 5, (6, 2)).astype(dtype.as_numpy_dtype)
    updates = rng.integers("Div" in name, 2 if dtype == tf.bool else 4, (2, 2, 2)).astype(dtype.as_numpy_dtype)
    results = []
    for device in ["CPU", "HEADRACE"]:
        target = variable(device, start)
        before = tf.identity(target)
        for indices in [np.array([[0, 3], [5, 1]], "int32"), np.array([[4, 3], [2, 0]], "int64")]:
            getattr(tf.raw_ops, name)(resource=target.handle, indices=indices, updates=tf.constant(updates))
        one = np.ones((), dtype.as_numpy_dtype)
        getattr(tf.raw_ops, name)(resource=target.handle, indices=[2], updates=tf.constant(one))
        nothing = {"indices": np.zeros(0, "int32"), "updates": tf.constant(updates[:0, 0])}
        getattr(tf.raw_ops, name)(resource=target.handle, **nothing)
        results.append((target.numpy(), before.numpy(), target.numpy()))
    bound = 1e-6 if "Div" in name and dtype.is_complex else 0
    for want, have in zip(*results, strict=True):
        np.testing.assert_allclose(have, want, rtol=bound)


TUPLES = [
    pytest.param(name, dtype, id=f"{name}-{dtype.name}")
    for name in DTYPES
    if name.startswith("ResourceScatterNd")
    for dtype in DTYPES[name]
    if dtype != tf.int32
]


@pytest.mark.parametrize(("name", "dtype"), TUPLES)
def test_scatters_at_tuples(name, dtype):
    rng = np.random.default_rng(8)
    start, updates = (rng.integers(0, 5, dims).astype(dtype.as_numpy_dtype) for dims in [(4, 3, 2), (2, 2, 2)])
    results = []
    for device in ["CPU", "HEADRACE"]:
        target = variable(device, start)
        before = tf.identity(target)
        for indices in [np.array([[[0, 2], [3, 1]], [[2, 2], [1, 0]]], "int32"), np.array([[[3, 2], [3, 1]], [[0, 2], [1, 0]]])]:
            getattr(tf.raw_ops, name)(ref=target.handle, indices=indices, updates=tf.constant(updates))
        places = np.array([[0, 0, 0], [3, 2, 1]])
        read = tf.raw_ops.ResourceGatherNd(resource=target.handle, indices=places, dtype=dtype)
        assert device in read.device
        results.append((target.numpy(), before.numpy(), read.numpy()))
    for want, have in zip(*results, strict=True):
        np.testing.assert_array_equal(have, want)
    with pytest.raises(tf.errors.OutOfRangeError):
        getattr(tf.raw_ops, name)(ref=target.handle, indices=[[0, 3]], updates=tf.constant(updates[0, :1]))
        target.numpy()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES["ResourceStridedSliceAssign"] if dtype != tf.int32])
def test_slice_assignments(dtype):
    rng = np.random.default_rng(9)
    start, values = (rng.integers(0, 5, dims).astype(dtype.as_numpy_dtype) for dims in [(4, 6), (2, 3)])
    results = []
    for device in ["CPU", "HEADRACE"]:
        target = variable(device, start)
        before = tf.identity(target)
        target[1:3, ::2].assign(values)
        target[::-1, 5].assign(start[:, 0])
        target[0].assign(start[3])
        target[2:2].assign(start[:0])
        results.append((target.numpy(), before.numpy()))
    for want, have in zip(*results, strict=True):
        np.testing.assert_array_equal(have, want)


def test_indices_that_occur_twice_are_added():
    target = variable("HEADRACE", np.zeros((4, 2), "float32"))
    target.scatter_add(tf.IndexedSlices(tf.ones((3, 2)), [1, 1, 3]))
    assert target.numpy()[:, 0].tolist() == [0, 2, 0, 1]


def test_scatter_out_of_range_is_an_error():
    target = variable("HEADRACE", np.zeros((4, 2), "float32"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.ResourceScatterAdd(resource=target.handle, indices=[4], updates=tf.ones((1, 2)))
        target.numpy()


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_gather(index):
    x = np.arange(10, dtype="float32").reshape(5, 2)
    target = variable("HEADRACE", x)
    places = np.array([[4, 0], [1, 1]], index)
    result = tf.raw_ops.ResourceGather(resource=target.handle, indices=places, dtype=tf.float32)
    assert result.device.endswith("HEADRACE:0")
    np.testing.assert_array_equal(result.numpy(), x[places])


NUMBERS = {  # the arguments of optimizers that are numbers
    "alpha": 0.05, "lr": 0.05, "rho": 0.9, "momentum": 0.9, "epsilon": 1e-3, "beta1": 0.9, "beta2": 0.99,
    "sign_decay": 0.7, "beta": 0.8, "logbase": 0.9, "l1": 0.02, "l2": 0.1, "l2_shrinkage": 0.05, "lr_power": -0.5,
    "global_step": 3,
}  # fmt: skip


def steps(device, name, dtype):
    """Three steps of an optimizer on the same numbers: all its variables afterwards. Rows of sparse ones repeat."""
    rng = np.random.default_rng(1)
    definition = op_def_registry.get(name)
    inputs = [argument.name for argument in definition.input_arg]
    slots = [argument.name for argument in definition.input_arg if argument.type == tf.resource.as_datatype_enum]
    options = {attribute.name for attribute in definition.attr} - {"T", "Tindices", "use_locking"}
    with tf.device(device):
        variables = {slot: tf.Variable(tf.cast(rng.uniform(0.5, 1, (4, 3)), dtype)) for slot in slots}
        for step in range(3):
            numbers = NUMBERS | {"beta1_power": 0.9 ** (step + 1), "beta2_power": 0.99 ** (step + 1)}
            gradient = tf.cast(rng.uniform(-1, 1, (4, 3)), dtype)
            places = np.array([2, 0, 2, 2], ["int32", "int64"][step % 2])
            arguments = {key: variables[key].handle for key in slots}
            arguments |= {key: tf.cast(numbers[key], dtype) for key in inputs if key in numbers}
            arguments |= {key: tf.constant(3, tf.int64) for key in ("global_step",) if key in inputs}
            arguments |= {key: gradient for key in ("grad", "delta") if key in inputs}
            arguments |= {key: places for key in ("indices",) if key in inputs}
            arguments |= {option: (step == 2) != (option == "update_slots") for option in options}
            getattr(tf.raw_ops, name)(**arguments, use_locking=step == 1)
        return [variable.numpy().astype("complex128") for variable in variables.values()]


@pytest.mark.parametrize("name", [name for name in DTYPES if name.startswith(("ResourceApply", "ResourceSparseApply"))])
def test_optimizers(name):
    for dtype in DTYPES[name]:
        bound = {2: 3e-2, 4: 2e-6, 8: 2e-6 if dtype == tf.complex64 else 1e-12}.get(dtype.size, 1e-12)
        bound = 0.1 if dtype == tf.bfloat16 and "Sparse" in name else bound  # three steps of one row
        for want, have in zip(steps("CPU", name, dtype), steps("HEADRACE", name, dtype), strict=True):
            np.testing.assert_allclose(have, want, rtol=bound, atol=bound)


def test_optimizer_refuses_other_dims():
    target = variable("HEADRACE", np.zeros((2, 3), "float32"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="other dims"):
        tf.raw_ops.ResourceApplyGradientDescent(var=target.handle, alpha=1.0, delta=tf.ones((3, 2)))


def sparse_step(rows, gradients, start=(4, 2)):
    target, total = variable("HEADRACE", np.ones(start, "float32")), variable("HEADRACE", np.ones(start, "float32"))
    before = tf.identity(target)
    tf.raw_ops.ResourceSparseApplyAdagrad(
        var=target.handle, accum=total.handle, lr=0.1, grad=tf.ones(gradients), indices=rows
    )
    assert np.array_equal(before.numpy(), np.ones(start))
    return target.numpy()


def test_sparse_steps_of_bad_rows_are_errors():
    for row in (4, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"index {row} at offset 1 .* out of range of 4 rows"):
            sparse_step([0, row], (2, 2))
    for rows, gradients in [([0], (2, 2)), ([0, 1], (2, 3)), ([0], (2,)), ([[0]], (1, 2))]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="a row of the variable for each index"):
            sparse_step(rows, gradients)
    none = sparse_step(np.zeros(0, "int32"), (0, 2))
    np.testing.assert_array_equal(none, np.ones((4, 2)))
    assert sparse_step(np.zeros(0, "int32"), (0, 2), start=(0, 2)).shape == (0, 2)
