"""Probes of the core, as tracers find them: the notes of sdt.h in the library's file."""

import struct
from pathlib import Path

import headrace.torch  # noqa: F401
import pytest

PROBES = {"kernel__begin", "kernel__end", "commit", "compile", "copy", "allocate", "fallback"}


def sections(data: bytes) -> dict[str, tuple[int, int, int]]:
    """Names of an ELF file's sections, with address, offset and size."""
    (at,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    text = data[heads[names][4] :]
    return {text[h[0] : text.index(b"\0", h[0])].decode(): (h[3], h[4], h[5]) for h in heads}


def notes(data: bytes) -> list[tuple[int, int, str, str, str]]:
    """Address, base, provider, name and arguments of each probe."""
    _, begin, size = sections(data)[".note.stapsdt"]
    found, at = [], begin
    while at < begin + size:
        name_size, text_size, kind = struct.unpack_from("<III", data, at)
        at += 12
        assert (data[at : at + name_size], kind) == (b"stapsdt\0", 3)
        at += name_size + -name_size % 4
        address, base, semaphore = struct.unpack_from("<QQQ", data, at)
        words = data[at + 24 : at + text_size].split(b"\0")
        found.append((address, base, *(word.decode() for word in words[:3])))
        assert semaphore == 0
        at += text_size + -text_size % 4
    return found


@pytest.fixture(scope="module")
def library() -> bytes:
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    data = Path(next(name for name in mapped if "/libheadrace.so" in name)).read_bytes()
    machine = struct.unpack_from("<H", data, 0x12)[0]
    if data[:4] != b"\x7fELF" or machine not in (62, 183):
        pytest.skip("probes are for Linux on x86-64 and AArch64")
    return data


def test_tracers_find_every_probe(library: bytes) -> None:
    found = notes(library)
    assert {name for *_, name, _ in found} == PROBES
    assert {provider for _, _, provider, _, _ in found} == {"headrace"}


def test_probes_are_where_their_notes_say(library: bytes) -> None:
    parts = sections(library)
    address, offset, size = parts[".text"]
    for at, base, _, name, arguments in notes(library):
        assert base == parts[".stapsdt.base"][0]
        assert address <= at < address + size, name
        if struct.unpack_from("<H", library, 0x12)[0] == 62:
            assert library[offset + at - address] == 0x90, name
        assert [word.split("@")[0] for word in arguments.split()] == ["8", "-8"], name
