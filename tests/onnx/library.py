"""The C library by ctypes: models opened, run in a session, results as NumPy arrays."""

import ctypes
import os
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = str(os.environ.get("HEADRACE_LIBRARY", ROOT / "build/release/libheadrace.so"))
RANK_MAX = 16
DTYPES = {
    1: np.bool_, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.uint32, 7: np.int32, 8: np.uint64,
    9: np.int64, 10: np.float16, 11: ml_dtypes.bfloat16, 12: np.float32, 13: np.float64, 14: np.complex64,
    15: np.complex128, 17: ml_dtypes.float8_e4m3fn, 18: ml_dtypes.float8_e5m2, 19: ml_dtypes.float8_e4m3fnuz,
    20: ml_dtypes.float8_e5m2fnuz, 21: ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.items()}


class Scalar(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("value", ctypes.c_double * 2)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("number", Scalar),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("offset", ctypes.c_int64),
        ("dims", ctypes.c_int64 * RANK_MAX),
        ("strides", ctypes.c_int64 * RANK_MAX),
    ]


class Elements(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("dims", ctypes.c_int64 * RANK_MAX),
        ("address", ctypes.c_void_p),
    ]


class Constant(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("elements", Elements)]


class Dim(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_int64)]


class Options(ctypes.Structure):
    _fields_ = [
        ("dim_count", ctypes.c_int),
        ("dims", ctypes.POINTER(Dim)),
        ("constant_count", ctypes.c_int),
        ("constants", ctypes.POINTER(Constant)),
        ("has_variables", ctypes.c_bool),
    ]


class Failure(Exception):
    """A status of the library: its code and message."""


class Library:
    def __init__(self, path: str):
        self.c = ctypes.CDLL(path)
        for name in ("hr_status_message", "hr_status_code_name", "hr_graph_value_name", "hr_graph_output_name"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in (
            "hr_device_open", "hr_stream_create", "hr_onnx_open", "hr_session_create", "hr_session_run",
            "hr_array_from_host", "hr_array_read",
        ):  # fmt: skip
            getattr(self.c, name).restype = ctypes.c_void_p
        device, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.c.hr_device_open(b"cpu", ctypes.byref(device)))
        self.check(self.c.hr_stream_create(device, ctypes.byref(self.stream)))

    def check(self, status: int | None) -> None:
        if status:
            handle = ctypes.c_void_p(status)
            code = self.c.hr_status_code_name(self.c.hr_status_code_of(handle)).decode()
            message = self.c.hr_status_message(handle).decode(errors="replace")
            self.c.hr_status_free(handle)
            raise Failure(f"{code}: {message}")

    def array(self, x: np.ndarray) -> Tensor:
        tensor = Tensor()
        x = np.array(x, order="C")
        dims = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape)
        self.check(self.c.hr_array_from_host(self.stream, NUMBERS[x.dtype], x.ndim, dims,
                                             ctypes.c_void_p(x.ctypes.data), ctypes.byref(tensor)))  # fmt: skip
        return tensor

    def numpy(self, tensor: Tensor) -> np.ndarray:
        out = np.empty(tensor.dims[: tensor.rank], DTYPES[tensor.dtype])
        self.check(self.c.hr_array_read(self.stream, ctypes.byref(tensor), ctypes.c_void_p(out.ctypes.data)))
        return out

    def release(self, tensor: Tensor) -> None:
        self.c.hr_tensor_release(ctypes.byref(tensor))

    def open(self, path: Path, constants: dict[str, np.ndarray], sizes: dict[str, int] | None = None):
        """The graph of a model; constants are for inputs on which dims depend, sizes for symbols."""
        kept = {name: np.array(x, order="C") for name, x in constants.items()}
        rows = (Constant * max(len(kept), 1))()
        for row, (name, x) in zip(rows, kept.items()):
            row.name = name.encode()
            row.elements = Elements(NUMBERS[x.dtype], x.ndim, (ctypes.c_int64 * RANK_MAX)(*x.shape), x.ctypes.data)
        sizes = sizes or {}
        dims = (Dim * max(len(sizes), 1))(*[Dim(name.encode(), size) for name, size in sizes.items()])
        options = Options(len(sizes), dims, len(kept), rows)
        graph = ctypes.c_void_p()
        self.check(self.c.hr_onnx_open(os.fsencode(path), ctypes.byref(options), ctypes.byref(graph)))
        return graph

    def run(self, graph: ctypes.c_void_p, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The graph's outputs by name. Inputs that are constants of the graph are not needed."""
        session = ctypes.c_void_p()
        self.check(self.c.hr_session_create(self.stream, graph, None, ctypes.byref(session)))
        names = [
            self.c.hr_graph_value_name(graph, self.c.hr_graph_input_value(graph, i)).decode()
            for i in range(self.c.hr_graph_input_count(graph))
        ]
        count = self.c.hr_graph_output_count(graph)
        tensors = [self.array(inputs[name]) for name in names]
        places = (ctypes.POINTER(Tensor) * max(len(tensors), 1))(*[ctypes.pointer(x) for x in tensors])
        results = (Tensor * max(count, 1))()
        try:
            self.check(self.c.hr_session_run(session, len(tensors), places, count, results))
            return {self.c.hr_graph_output_name(graph, i).decode(): self.numpy(results[i]) for i in range(count)}
        finally:
            for tensor in [*tensors, *results]:
                self.release(tensor)
            self.c.hr_session_release(session)
