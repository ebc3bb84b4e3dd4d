#!/usr/bin/env python3
"""Builds the wheels for x86-64 Linux.

    headrace              one library of the core for every CPU, and one of the device for each torch
    headrace-jax          the plug-in for JAX, which finds the core in the package headrace
    headrace-tensorflow   the pluggable device for TensorFlow, likewise

usage: build_wheel.py [--torches 2.13,2.15] [--out dist]       in an environment with requirements-wheels.txt

The code is compiled by gcc for x86-64-v2 with hot loops for each level (HEADRACE_NATIVE=OFF), and linked by zig,
so that no symbol newer than glibc 2.28 is needed (HEADRACE_GLIBC). Of each torch only headers and torchgen are needed.
They come from the wheels in the folder TORCH_WHEELS, or from those that pip downloads to build/wheels/torches. Empty
libraries of the same names stand in for torch's.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/wheels"
TORCHES = ["2.11", "2.12", "2.13", "2.14", "2.15"]
GLIBC = "2.28"
PARTS = ("torch/include/", "torchgen/", "torch/version.py")
LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libtorch_python.so")


def run(*command, **options):
    print("+", *map(str, command), flush=True)
    subprocess.run(list(map(str, command)), check=True, **options)


def wheel_of(minor):
    """The wheel of a torch: in the user's folder, or downloaded."""
    folders = [pathlib.Path(folder) for folder in (os.environ.get("TORCH_WHEELS"), BUILD / "torches") if folder]
    for folder in folders:
        if found := sorted(folder.glob(f"torch-{minor}.*.whl")):
            return found[-1]
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        f"torch=={minor}.*",
        "--dest",
        folders[-1],
    )
    return wheel_of(minor)


def unpack(minor):
    """The folder with a torch's headers, torchgen, and libraries to link with."""
    folder = BUILD / f"torch-{minor}"
    if (folder / "torch/version.py").exists():
        return folder
    print(f"headers of torch {minor} go into {folder.relative_to(ROOT)}", flush=True)
    with zipfile.ZipFile(wheel_of(minor)) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(PARTS)])
    (folder / "torch/lib").mkdir()
    for name in LIBRARIES:
        run(
            "gcc",
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{name}",
            "-x",
            "c",
            os.devnull,
            "-o",
            folder / "torch/lib" / name,
        )
    return folder


def zig():
    import ziglang

    return pathlib.Path(ziglang.__file__).parent / "zig"


def wheel_from(folder, defines):
    """The wheel of the project in a folder. All projects share one build folder, so that the core is compiled once."""
    made = BUILD / "made" / folder.name
    shutil.rmtree(made, ignore_errors=True)
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        f"-Cbuild-dir={BUILD / 'cmake'}",
        *settings,
        "--wheel-dir",
        made,
        folder,
        env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())},
    )
    (wheel,) = made.glob("headrace*.whl")
    platform = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform, wheel)
    (wheel,) = made.glob("headrace*.whl")
    run(sys.executable, ROOT / "scripts/check_wheel.py", wheel)
    return wheel


def build(torches, out):
    defines = {
        "HEADRACE_NATIVE": "OFF",
        "HEADRACE_GLIBC": GLIBC,
        "HEADRACE_ZIG": zig(),
        "HEADRACE_TORCHES": ";".join(str(unpack(minor)) for minor in torches),
    }
    os.environ["PATH"] = (
        f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # this environment's cmake and ninja
    )
    wheels = [wheel_from(folder, defines) for folder in (ROOT, ROOT / "frontends/jax", ROOT / "frontends/tensorflow")]
    run(sys.executable, ROOT / "scripts/check_isa.py", BUILD / "cmake")
    out.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        shutil.copy(wheel, out)
        print(f"{out / wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    print(f"torch {', '.join(torches)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torches", default=",".join(TORCHES), help="minor versions, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    options = parser.parse_args()
    torches = options.torches.split(",")
    if unknown := [minor for minor in torches if not re.fullmatch(r"\d+\.\d+", minor)]:
        sys.exit(f"build_wheel: {unknown[0]} is no minor version of torch, such as {TORCHES[-1]}")
    build(torches, options.out)


if __name__ == "__main__":
    main()
