"""map.def against the registry of TensorFlow: operations that exist, types that they may have, no row twice."""

import collections
import itertools
import pathlib
import re

import tensorflow as tf
from table import FOLDER, host_arguments, rows
from tensorflow.python.framework import kernels, op_def_registry


def registered(name):
    return [k for k in kernels.get_registered_kernels_for_op(name).kernel if k.device_type == "HEADRACE"]


def test_each_operation_has_one_row():
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(FOLDER / "map.def").read_text(), flags=re.DOTALL)
    names = re.findall(r"^OP\((\w+),", text, flags=re.MULTILINE)
    assert [name for name, count in collections.Counter(names).items() if count > 1] == []
    assert names == [name for name, _, _ in rows()]


def test_rows_are_of_operations_with_these_types_and_arguments():
    hosts = host_arguments()
    for name, attribute, dtypes in rows():
        definition = op_def_registry.get(name)
        assert definition is not None, name
        arguments = {argument.name for argument in [*definition.input_arg, *definition.output_arg]}
        assert hosts[name] <= arguments, name
        attributes = {one.name: one for one in definition.attr}
        for one in filter(None, attribute.split(",")):
            allowed = set(attributes[one].allowed_values.list.type)
            wrong = [dtype.name for dtype in dtypes if allowed and dtype.as_datatype_enum not in allowed]
            assert wrong == [], f"{name}: no program has it in {wrong}"


def types_of(kernel):
    """The tuples of types that a kernel takes."""
    return itertools.product(*(constraint.allowed_values.list.type for constraint in kernel.constraint))


def test_each_type_is_registered_once():
    for name, attribute, dtypes in rows():
        found = collections.Counter(types for kernel in registered(name) for types in types_of(kernel))
        wanted = [dtype.as_datatype_enum for dtype in dtypes]
        if name in ("AddN", "ZerosLike"):  # TensorFlow's own kernels of lists of tensors
            wanted.append(tf.variant.as_datatype_enum)
        wanted = itertools.product(wanted, repeat=len(attribute.split(",")))
        assert found == collections.Counter(wanted if dtypes else [()]), name


def test_no_kernel_reads_i32_on_the_device_and_writes_it_on_the_host():
    """For such a kernel TensorFlow copies an input that is on the device as if it were on the host."""
    ours = {name for name, _, _ in rows()}
    for kernel in kernels.get_all_registered_kernels().kernel:
        definition = op_def_registry.get(kernel.op)
        is_ours = kernel.device_type == "HEADRACE"
        if not (is_ours or kernel.device_type == "DEFAULT") or definition is None or kernel.op.startswith("TensorList"):
            continue
        allowed = {one.name: list(one.allowed_values.list.type) for one in kernel.constraint}
        small = tf.int32.as_datatype_enum
        unnamed = [small] if is_ours else []  # a type that the kernel does not name
        sides = [
            {
                a.name in kernel.host_memory_arg
                for a in arguments
                if a.type == small or (a.type_attr and small in allowed.get(a.type_attr, unnamed))
            }
            for arguments in (definition.input_arg, definition.output_arg)
        ]
        crosses = False in sides[0] and True in sides[1]
        assert not crosses or (not is_ours and kernel.op in ours), kernel.op


def test_the_registry_has_no_other_kernels():
    names = {name for name, _, _ in rows()}
    everything = kernels.get_all_registered_kernels().kernel
    assert {k.op for k in everything if k.device_type == "HEADRACE"} - names <= {"HeadraceCall", "HeadraceCluster"}
    assert tf.__version__ == "2.19.1"
