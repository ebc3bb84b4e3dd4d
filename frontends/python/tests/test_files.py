"""Files of arrays: round trips, numpy's files and safetensors' files, damaged ones."""

import io
import os
import struct

import numpy as np
import pytest

import headrace as hr

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()
SHAPES = [(), (0,), (3, 0, 2), (5,), (2, 3, 4), (1, 1), (64,)]


def sample(dtype, shape):
    values = np.random.default_rng(0).uniform(-3, 3, shape)
    return np.asarray(values > 0 if dtype == "bool" else np.abs(values) * 9 if dtype[0] == "u" else values).astype(dtype)


def same(x, expected):
    assert str(x.dtype) == str(expected.dtype) and x.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_both_ways(tmp_path, dtype):
    for shape in SHAPES:
        values = sample(dtype, shape)
        hr.save(tmp_path / "a.npy", hr.array(values))
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), values)
        same(hr.load(tmp_path / "a.npy"), values)
        for order in "<>":
            np.save(tmp_path / "b.npy", values.copy(order="F").astype(values.dtype.newbyteorder(order)))
            same(hr.load(tmp_path / "b.npy"), values)
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "b.npy"]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "complex128"])
def test_safetensors_both_ways(tmp_path, dtype):
    numpy_side = pytest.importorskip("safetensors.numpy")
    values = {f"{i}": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    hr.save_safetensors(tmp_path / "a", {k: hr.array(v) for k, v in values.items()}, metadata={"k": "v"})
    arrays, metadata = hr.load(tmp_path / "a.safetensors", return_metadata=True)
    assert metadata == {"k": "v"} and arrays.keys() == values.keys()
    for name, expected in values.items():
        same(arrays[name], expected)
    if dtype == "complex64":
        return
    for name, found in numpy_side.load_file(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(found, values[name])
    numpy_side.save_file(values, tmp_path / "b.safetensors")
    for name, found in hr.load(tmp_path / "b.safetensors").items():
        same(found, values[name])


def test_other_dtypes_and_views(tmp_path):
    x = hr.array([1.5, -2, 3], dtype=hr.bfloat16)
    hr.save(tmp_path / "x", x)
    assert hr.load(tmp_path / "x.npy").dtype == hr.bfloat16 and hr.load(tmp_path / "x.npy").tolist() == [1.5, -2, 3]
    small = x.astype(hr.float8_e5m2)
    arrays = {"x": x, "small": small, "view": hr.arange(12).reshape(3, 4).T[::-2], "lazy": x * 2, "list": [1, 2]}
    hr.save_safetensors(tmp_path / "s", arrays)
    found = hr.load(tmp_path / "s.safetensors")
    assert found["view"].tolist() == arrays["view"].tolist() and found["lazy"].tolist() == [3, -4, 6]
    assert found["small"].dtype == hr.float8_e5m2 and found["small"].astype(hr.float32).tolist() == [1.5, -2, 3]
    assert found["x"].dtype == hr.bfloat16 and found["list"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="no arrays of f8e5m2"):
        hr.save(tmp_path / "y", small)
    assert not os.path.exists(tmp_path / "y.npy")


def test_odd_names(tmp_path):
    names = ["", " ", "a.b/c", 'q"\\', "é😀", "\x01\n", "x" * 5000]
    hr.save_safetensors(tmp_path / "n", {name: hr.array([i]) for i, name in enumerate(names)})
    assert {k: v.item() for k, v in hr.load(tmp_path / "n.safetensors").items()} == {k: i for i, k in enumerate(names)}
    for bad in ("a\0b", "\ud800"):
        with pytest.raises(ValueError):
            hr.save_safetensors(tmp_path / "m", {bad: hr.array(1)})
    with pytest.raises(ValueError, match="__metadata__"):
        hr.save_safetensors(tmp_path / "m", {"__metadata__": hr.array(1)})
    with pytest.raises(TypeError):
        hr.save_safetensors(tmp_path / "m", {1: hr.array(1)})
    with pytest.raises(TypeError):
        hr.save_safetensors(tmp_path / "m", {"a": hr.array(1)}, metadata={"a": 1})


def test_arrays_outlive_and_never_change_their_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000.0))
    x = hr.load(path)
    x[0] = 7
    assert np.load(path)[0] == 0
    y = hr.load(path)
    hr.save(path, y + 1)
    assert y.tolist() == list(range(1000)) and hr.load(path)[0].item() == 1
    os.remove(path)
    assert x[0].item() == 7 and y.sum().item() == 499500


def test_file_objects(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.arange(6).reshape(2, 3))
    stream.seek(0)
    assert hr.load(stream).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match="expected a path"):
        hr.save(stream, hr.array(1))
    with pytest.raises(TypeError):
        hr.load(3.5)


def test_damaged_files(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(100))
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="x.npy"):
            hr.load(path)
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        hr.load(path)
    path.write_bytes(struct.pack("<Q", 2**40) + b"{}")
    with pytest.raises(ValueError, match="header length is 1099511627776"):
        hr.load(path)
    with pytest.raises(FileNotFoundError):
        hr.load(tmp_path / "none")
    with pytest.raises(OSError):
        hr.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        hr.save(tmp_path / "none" / "x", hr.array(1))
