"""Files of arrays: round trips, the files of numpy, zipfile, safetensors and MLX, damaged ones."""

import io
import os
import struct
import zipfile
import zlib

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
    values = np.arange(6).reshape(2, 3)
    numpy_stream = io.BytesIO()
    np.save(numpy_stream, values)
    for write in (
        lambda f: f.write(numpy_stream.getvalue()),
        lambda f: hr.save(f, hr.array(values)),
        lambda f: hr.savez(f, x=values),
        lambda f: hr.savez_compressed(f, x=values),
        lambda f: hr.save_safetensors(f, {"x": values}),
        lambda f: hr.save_gguf(f, {"x": values}),
    ):
        stream = io.BytesIO()
        write(stream)
        stream.seek(0)
        found = hr.load(stream)
        same(found["x"] if isinstance(found, dict) else found, values)
    with open(tmp_path / "x", "wb") as f:
        hr.save(f, values)
    same(hr.load(tmp_path / "x"), values)
    with pytest.raises(TypeError):
        hr.load(3.5)
    with pytest.raises(TypeError):
        hr.save(3.5, hr.array(1))


def test_file_objects_that_fail():
    class Short(io.BytesIO):
        def write(self, data):
            return super().write(bytes(data)[:-1])

    class Broken(io.BytesIO):
        def write(self, data):
            raise KeyError("broken")

    with pytest.raises(OSError, match="wrote"):
        hr.save(Short(), hr.array([1, 2]))
    with pytest.raises(KeyError, match="broken"):
        hr.save_gguf(Broken(), {"x": hr.array([1, 2])})


# ---- npz


@pytest.mark.parametrize("dtype", DTYPES)
def test_npz_both_ways(tmp_path, dtype):
    values = {f"v{i}/é": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    arrays = {k: hr.array(v) for k, v in values.items()}
    for ours, theirs in ((hr.savez, np.savez), (hr.savez_compressed, np.savez_compressed)):
        ours(tmp_path / "a", **arrays)
        with np.load(tmp_path / "a.npz") as found:
            assert sorted(found) == sorted(values)
            for name, x in found.items():
                np.testing.assert_array_equal(x, values[name])
        theirs(tmp_path / "b.npz", **values)
        for path in ("a.npz", "b.npz"):
            found = hr.load(tmp_path / path)
            assert found.keys() == values.keys()
            for name, x in found.items():
                same(x, values[name])
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b.npz"]


def test_npz_names(tmp_path):
    for function in (hr.savez, hr.savez_compressed):
        function(tmp_path / "x", hr.array([1]), 2.5, file=hr.array([3]), **{"": [4]})
        found = hr.load(tmp_path / "x.npz")
        assert {k: v.tolist() for k, v in found.items()} == {"arr_0": [1], "arr_1": 2.5, "file": [3], "": [4]}
        with pytest.raises(ValueError, match="arr_0"):
            function(tmp_path / "y", 1, arr_0=2)
        with pytest.raises(TypeError):
            function()
        with pytest.raises(ValueError, match="no arrays of f8e5m2"):
            function(tmp_path / "x", hr.array([1.0]).astype(hr.float8_e5m2))
        assert len(hr.load(tmp_path / "x.npz")) == 4
        function(tmp_path / "none")
        assert hr.load(tmp_path / "none.npz") == {}
        os.symlink("none.npz", tmp_path / "link.npz")
        function(tmp_path / "link", 1)
        assert os.path.islink(tmp_path / "link.npz") and list(hr.load(tmp_path / "none.npz")) == ["arr_0"]
        os.remove(tmp_path / "link.npz")
    hr.savez(tmp_path / "h", hr.array([1.5], dtype=hr.bfloat16))
    assert hr.load(tmp_path / "h.npz")["arr_0"].dtype == hr.bfloat16
    with zipfile.ZipFile(tmp_path / "h.npz") as archive:
        assert archive.testzip() is None
    assert sorted(os.listdir(tmp_path)) == ["h.npz", "none.npz", "x.npz"]
    os.mkdir(tmp_path / "folder.npz")
    for function in (hr.savez, hr.savez_compressed):
        with pytest.raises(ValueError, match="regular file"):
            function(tmp_path / "folder", 1)


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("strategy", ["DEFAULT_STRATEGY", "FILTERED", "HUFFMAN_ONLY", "RLE", "FIXED"])
def test_inflate_reads_what_zlib_writes(tmp_path, level, strategy):
    random = np.random.default_rng(level)
    skewed = random.permutation(np.repeat(np.arange(20, dtype=np.uint8), [2**i // 3 + 1 for i in range(20)]))
    for values in (
        np.zeros(300_000, np.float32),
        random.integers(0, 256, 100_000).astype(np.uint8),
        random.normal(size=20_000).astype(np.float16),
        np.arange(50_000, dtype=np.int32),
        skewed,  # codes of up to 15 bits
        np.frombuffer(os.urandom(33_000) * 3, np.uint8),  # copies from as far as they can be
    ):
        npy = io.BytesIO()
        np.save(npy, values)
        packer = zlib.compressobj(level, zlib.DEFLATED, -15, 9, getattr(zlib, "Z_" + strategy))
        packed = packer.compress(npy.getvalue()) + packer.flush()
        write_zip(tmp_path / "x.npz", [("x.npy", npy.getvalue(), packed, 8)])
        same(hr.load(tmp_path / "x.npz")["x"], values)


def write_zip(path, members, whole=None, offset=None):
    """An archive of (name, bytes, packed bytes, algorithm); `whole` and `offset` replace all members' fields."""
    file, directory = b"", b""
    for name, data, packed, method in members:
        sizes = struct.pack("<IIIHH", zlib.crc32(data), len(packed), len(data) if whole is None else whole, len(name), 0)
        at = len(file) if offset is None else offset
        file += struct.pack("<IHHHI", 0x04034B50, 20, 0, method, 0) + sizes + name.encode() + packed
        directory += struct.pack("<IHHHHI", 0x02014B50, 20, 20, 0, method, 0) + sizes
        directory += struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode()
    count = len(members)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, len(directory), len(file), 0)
    path.write_bytes(file + directory + end)


def test_damaged_npz(tmp_path):
    path = tmp_path / "x.npz"
    npy = io.BytesIO()
    np.save(npy, np.arange(1000))
    data = npy.getvalue()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    object_npy = io.BytesIO()
    np.save(object_npy, np.array([{}], dtype=object), allow_pickle=True)
    objects = object_npy.getvalue()
    for members, named, message in (
        ([("x.npy", data, packed, 8)], {"whole": 2**31}, "can't stand for 2147483648"),
        ([("x.npy", data, packed, 8)], {"whole": len(data) + 1}, "expected 8129"),
        ([("x.npy", data, packed, 8)], {"whole": len(data) - 1}, "need 8000 bytes"),
        ([("x.npy", data, packed[:-9], 8)], {}, "ends within"),
        ([("x.npy", data, packed, 8)] * 2, {}, "two arrays have the name 'x'"),
        ([("x.npy", data, packed, 8), ("y.npy", data, packed, 8)], {"offset": 0}, "another name"),
        ([("x.npy", data, packed, 8)], {"offset": 10**6}, "not at byte 1000000"),
        ([("x.npy", data, data[:-1], 0)], {}, "can't stand for"),
        ([("x.npy", data, bytes(len(data)), 0)], {}, "magic"),
        ([("x.npy", data, data[:-1] + b"!", 0)], {}, "checksum"),
        ([("x.npy", data, packed, 14)], {}, "algorithm 14"),
        ([("x.txt", data, packed, 8)], {}, "ends with .npy"),
        ([("x.npy", objects, objects, 0)], {}, "pickle"),
    ):
        write_zip(path, members, **named)
        with pytest.raises(ValueError, match=message):
            hr.load(path)
    np.savez_compressed(path, a=np.arange(100), b=np.ones(3))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="x.npz"):
            hr.load(path)
    with pytest.raises(ValueError, match="file object: .*bytes"):
        hr.load(io.BytesIO(b"#!/bin/sh\n" + whole))


def test_overlapping_members_are_refused(tmp_path):
    """A small archive whose members are the same compressed bytes would stand for much memory."""
    npy = io.BytesIO()
    np.save(npy, np.zeros(10**6))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(npy.getvalue()) + packer.flush()
    sizes = struct.pack("<IIIHH", zlib.crc32(npy.getvalue()), len(packed), len(npy.getvalue()), 5, 0)
    inner = struct.pack("<IHHHI", 0x04034B50, 20, 0, 8, 0) + sizes + b"b.npy"
    stored = struct.pack("<IHHHI", 0x04034B50, 20, 0, 0, 0)
    data = npy.getvalue()[:128].replace(b"(1000000,)", b"(1,)      ") + inner + packed
    sizes_a = struct.pack("<IIIHH", zlib.crc32(data), len(data), len(data), 5, 0)
    file = stored + sizes_a + b"a.npy" + data
    at = len(stored) + len(sizes_a) + 5 + 128
    directory = struct.pack("<IHHHHI", 0x02014B50, 20, 20, 0, 0, 0) + sizes_a + struct.pack("<HHHII", 0, 0, 0, 0, 0)
    directory += b"a.npy" + struct.pack("<IHHHHI", 0x02014B50, 20, 20, 0, 8, 0) + sizes
    directory += struct.pack("<HHHII", 0, 0, 0, 0, at) + b"b.npy"
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2, 2, len(directory), len(file), 0)
    (tmp_path / "x.npz").write_bytes(file + directory + end)
    with pytest.raises(ValueError, match="'b' begins at byte .*, but another array ends at"):
        hr.load(tmp_path / "x.npz")


# ---- gguf

GGUF_DTYPES = "int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


@pytest.mark.parametrize("dtype", GGUF_DTYPES)
def test_gguf_round_trip(tmp_path, dtype):
    arrays = {f"v{i}": hr.array(sample("float32", shape)).astype(dtype) for i, shape in enumerate(SHAPES)}
    arrays["view"] = hr.arange(12).reshape(3, 4).T[::-2].astype(dtype)
    hr.save_gguf(tmp_path / "x", arrays)
    found = hr.load(tmp_path / "x.gguf")
    assert found.keys() == arrays.keys()
    for name, x in found.items():
        assert x.dtype == arrays[name].dtype and x.shape == arrays[name].shape
        assert x.tolist() == arrays[name].tolist()


def test_gguf_metadata(tmp_path):
    numbers = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32 float64".split()
    metadata = {"text": "a\0b", "empty": "", "list": ["x", "", "é", "\udcff"], "number": 1.5, "integers": [1, 2]}
    metadata |= {f"{name}{shape}": hr.array(sample(name, shape)) for name in numbers for shape in ((), (2,), (0,))}
    hr.save_gguf(tmp_path / "x", {"a": hr.ones(2)}, metadata)
    arrays, found = hr.load(tmp_path / "x.gguf", return_metadata=True)
    assert arrays["a"].tolist() == [1, 1] and found.keys() == metadata.keys()
    for key, value in metadata.items():
        if isinstance(value, hr.Array):
            assert found[key].dtype == value.dtype and found[key].shape == value.shape
        assert (found[key].tolist() if isinstance(found[key], hr.Array) else found[key]) == (
            value.tolist() if isinstance(value, hr.Array) else value
        )
    for value in (hr.array(1, dtype=hr.float16), hr.array(1j), hr.ones((2, 2)), ["a", 1], None, hr.array([1.0], dtype=hr.bfloat16)):
        with pytest.raises((ValueError, TypeError)):
            hr.save_gguf(tmp_path / "y", {}, {"a": value})
    for arrays in ({"a": hr.array([True])}, {"a": hr.array([1], dtype=hr.uint8)}, {"a": hr.array([1j])}):
        with pytest.raises(ValueError, match="no arrays of"):
            hr.save_gguf(tmp_path / "y", arrays)
    with pytest.raises(ValueError, match="general.alignment"):
        hr.save_gguf(tmp_path / "y", {}, {"general.alignment": hr.array(64, dtype=hr.uint32)})
    assert os.listdir(tmp_path) == ["x.gguf"]


def write_gguf(path, tensors, alignment=32):
    """A file of (name, dims from the innermost one on, type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0)
    data = b""
    for name, dims, type, values in tensors:
        head += struct.pack("<Q", len(name)) + name.encode()
        head += struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type, len(data))
        data += values + bytes(-len(values) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data)


def unpacked(packed, scales, biases, bits):
    """scale x + bias for groups of 32, in numpy."""
    words, mask = np.asarray(packed), 2**bits - 1
    x = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & mask
    x = x.reshape(*words.shape[:-1], -1, 32).astype(np.float32)
    wide = [np.asarray(v).astype(np.float32)[..., None] for v in (scales, biases)]
    return (x * wide[0] + wide[1]).reshape(*words.shape[:-1], -1)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_gguf_quantised(tmp_path, kind):
    random = np.random.default_rng(1)
    shape, blocks = (2, 3, 64), 2 * 3 * 2
    scale, bias = (random.normal(size=(blocks, 1)).astype(np.float16) for _ in range(2))
    nibbles, signed = random.integers(0, 16, (blocks, 32), dtype=np.uint8), random.integers(-128, 128, (blocks, 32))
    pairs = nibbles[:, :16] | nibbles[:, 16:] << 4
    wide = scale.astype(np.float32)
    type, bits, parts, expected = {
        "Q4_0": (2, 4, [scale, pairs], wide * (nibbles.astype(np.float32) - 8)),
        "Q4_1": (3, 4, [scale, bias, pairs], wide * nibbles + bias.astype(np.float32)),
        "Q8_0": (8, 8, [scale, signed.astype(np.int8)], wide * signed.astype(np.float32)),
    }[kind]
    data = np.concatenate([part.view(np.uint8) for part in parts], axis=1).tobytes()
    write_gguf(tmp_path / "x.gguf", [("a.weight", shape[::-1], type, data), ("b", shape[::-1], type, data)])
    found = hr.load(tmp_path / "x.gguf")
    assert list(found) == ["a.weight", "a.scales", "a.biases", "b", "b.scales", "b.biases"]
    for weight, prefix in (("a.weight", "a"), ("b", "b")):
        scales, biases = found[prefix + ".scales"], found[prefix + ".biases"]
        assert found[weight].dtype == hr.uint32 and found[weight].shape == (2, 3, 64 * bits // 32)
        assert scales.dtype == biases.dtype == hr.float16 and scales.shape == biases.shape == (2, 3, 2)
        np.testing.assert_array_equal(unpacked(found[weight], scales, biases, bits), expected.reshape(shape))


def test_damaged_gguf(tmp_path):
    path = tmp_path / "x.gguf"
    hr.save_gguf(path, {"a": hr.arange(100), "b.weight": hr.ones(3)}, {"k": "v", "l": ["a", "b"], "n": hr.arange(3)})
    whole = path.read_bytes()
    for size in range(0, len(whole) - 32):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="x.gguf"):
            hr.load(path)
    write_gguf(path, [("x", (256,), 12, bytes(144))])
    with pytest.raises(ValueError, match="'x' has type 12 .Q4_K., expected"):
        hr.load(path)
    write_gguf(path, [("x", (1,), 0, bytes(4)), ("x", (1,), 0, bytes(4))])
    with pytest.raises(ValueError, match="two arrays have the name 'x'"):
        hr.load(path)
    write_gguf(path, [("x.weight", (32,), 2, b"\xff\x7b" + bytes(16))])
    with pytest.raises(ValueError, match="scale 65504 is too large"):
        hr.load(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63))
    with pytest.raises(ValueError, match="a key at byte 24 needs 8 bytes"):
        hr.load(path)


def test_mlx_reads_and_writes_the_same_files(tmp_path):
    mx = pytest.importorskip("mlx.core")
    values = {"a": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32), "b": np.arange(5, dtype=np.int32)}
    ours, theirs = {k: hr.array(v) for k, v in values.items()}, {k: mx.array(v) for k, v in values.items()}
    hr.save_gguf(tmp_path / "h.gguf", ours, {"t": "x", "l": ["a", "b"], "n": hr.array([1, 2], dtype=hr.int32)})
    mx.save_gguf(str(tmp_path / "m.gguf"), theirs, {"t": "x", "l": ["a", "b"], "n": mx.array([1, 2])})
    hr.savez_compressed(tmp_path / "h.npz", **ours)
    mx.savez_compressed(str(tmp_path / "m.npz"), **theirs)
    for name in ("h.gguf", "m.gguf", "h.npz", "m.npz"):
        found, mlx_found = hr.load(tmp_path / name), mx.load(str(tmp_path / name))
        for key, value in values.items():
            np.testing.assert_array_equal(np.asarray(found[key]), value)
            np.testing.assert_array_equal(np.asarray(mlx_found[key]), value)
    for name in ("h.gguf", "m.gguf"):
        _, texts = hr.load(tmp_path / name, return_metadata=True)
        _, mlx_texts = mx.load(str(tmp_path / name), return_metadata=True)
        assert texts["t"] == mlx_texts["t"] == "x" and texts["l"] == mlx_texts["l"] == ["a", "b"]
        assert texts["n"].tolist() == mlx_texts["n"].tolist() == [1, 2]


# ---- others


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
