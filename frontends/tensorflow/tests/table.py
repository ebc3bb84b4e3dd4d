"""Reads map.def: which operations have kernels, and for which types."""

import pathlib
import re

import tensorflow as tf

FOLDER = pathlib.Path(__file__).parent.parent / "csrc"
NAMES = {
    "TF_HALF": tf.float16, "TF_BFLOAT16": tf.bfloat16, "TF_FLOAT": tf.float32, "TF_DOUBLE": tf.float64,
    "TF_COMPLEX64": tf.complex64, "TF_COMPLEX128": tf.complex128, "TF_INT8": tf.int8, "TF_INT16": tf.int16,
    "TF_INT32": tf.int32, "TF_INT64": tf.int64, "TF_UINT8": tf.uint8, "TF_UINT16": tf.uint16,
    "TF_FLOAT8_E5M2": tf.dtypes.experimental.float8_e5m2, "TF_FLOAT8_E4M3FN": tf.dtypes.experimental.float8_e4m3fn,
    "TF_UINT32": tf.uint32, "TF_UINT64": tf.uint64, "TF_BOOL": tf.bool, "TF_VARIANT": tf.variant,
}  # fmt: skip


def _sets():
    """The names of types.h with their dtypes."""
    sets = {}
    for name, value in re.findall(r"^#define (\w+) \((.*)\)$", (FOLDER / "types.h").read_text(), re.MULTILINE):
        one = re.fullmatch(r"1u << (\w+)", value)
        sets[name] = {NAMES[one[1]]} if one else set().union(*(sets[part] for part in value.split(" | ")))
    return sets


def host_arguments():
    """The arguments of each operation that are in the host's memory."""
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / "map.def").read_text(), flags=re.DOTALL)
    rows = re.findall(r'OP\((\w+), "[^"]*", [^,]*,\s*"([^"]*)"', text)
    return {name: {word for word in host.split() if "@" not in word} for name, host in rows}


def rows():
    """(operation, type attribute, dtypes) of each row; the dtypes of a row for any type are empty."""
    sets = _sets()
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / "map.def").read_text(), flags=re.DOTALL)
    for name, attribute, types in re.findall(r'OP\((\w+), "([^"]*)", ([^,]*),', text):
        types, _, without = types.partition("& ~")
        dtypes = set() if types == "0" else set().union(*(sets[part.strip()] for part in types.split("|")))
        dtypes -= (sets[without] if without else set()) | {tf.variant}  # test_variables.py has lists of tensors
        yield name, attribute, sorted(dtypes, key=lambda dtype: dtype.as_datatype_enum)
