#!/usr/bin/env python3
"""Installs the wheels into fresh environments and tests them there, as for a user without a compiler.

usage: run.py WHEEL [--torch-wheels FOLDER] [--only 'cp31* 2.15' jax tensorflow] [--keep FOLDER]

An environment is made for each wheel of torch in FOLDER (default: $TORCH_WHEELS and build/wheels/torches) whose
CPython is found (python3.X in PATH, or pyenv's). Wheels with CUDA need NVIDIA's libraries: a folder `nvidia` beside
FOLDER, in the layout of site-packages, stands in for them; without it they are left out. PATH is one empty folder in
all checks.

Each environment must
    give torch.ones(3, device="headrace"), and the output that the README shows, on each level of the processor
    name headrace[compiler] in `headrace doctor`
    compile kernels once ziglang is installed
    warn once, and leave `import torch` intact, if the library for this torch is removed
and one of them, without torch: `import headrace` works and `import headrace.torch` names the package to install.

With headrace_jax beside WHEEL, an environment for each CPython that JAX supports gets both wheels and JAX, and must
    have the platform with JAX_PLATFORMS=headrace, and JAX's CPU backend without it
    find oneDNN and LAPACK without variables
    work without oneDNN, and say so once

With headrace_tensorflow beside WHEEL, an environment for each CPython that TensorFlow has wheels for gets
headrace[tensorflow] from these wheels. TensorFlow must have the device and compute on it.

Prints a line for each check, exits 1 if any failed.
"""

import argparse
import fnmatch
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NEEDS = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy"]  # needed by `import torch`
README_OUTPUT = "tensor([0.8497, 0.8497, 0.8497], device='headrace:0')\n5 operations, 1 kernel\n"
ONES = "import torch; print(torch.ones(3, device='headrace').tolist())"
KERNELS = """if True:
    import time, torch
    x = torch.randn(1 << 20, device="headrace")
    deadline = time.monotonic() + 120
    while torch.headrace.stats()["kernels_compiled"] == 0 and time.monotonic() < deadline:
        y = (x * 3 - 1).sigmoid() + x
        torch.headrace.synchronize()
    print(torch.headrace.stats()["kernels_compiled"] > 0)
"""
JAX = "jax==0.10.2"
JAX_DEVICES = "import jax; print(jax.devices())"
JAX_PRODUCT = """if True:
    import jax, jax.numpy as jnp
    x = jnp.full((300, 300), 2.0)
    print(float(jax.jit(lambda x: x @ x)(x)[0, 0]), float(jax.jit(jnp.linalg.cholesky)(4 * jnp.eye(3))[2, 2]))
"""
TENSORFLOW_PRODUCT = """if True:
    import tensorflow as tf
    x = tf.fill((300, 300), 2.0)
    print(tf.__version__, x.device[-10:], float(tf.matmul(x, x)[0, 0]))
"""
TORCH_ALONE = "import torch; print(torch.ones(3).sum().item())"
WITHOUT_TORCH = """if True:
    import headrace
    try:
        import headrace.torch
    except ModuleNotFoundError as error:
        print(error)
"""


def interpreters():
    """{"cp311": path} of the CPythons that are found."""
    found = {}
    for minor in range(10, 15):
        path = shutil.which(f"python3.{minor}")
        pyenv = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3.{minor}")))
        for candidate in [*pyenv, *([path] if path else [])]:
            if subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
                found[f"cp3{minor}"] = candidate
    return found


class Environment:
    def __init__(self, folder, python):
        self.folder, self.python = folder, folder / "bin/python"
        subprocess.run([python, "-m", "venv", folder], check=True)
        (folder / "empty").mkdir()

    def install(self, *packages):
        command = [self.python, "-m", "pip", "install", "--quiet", *packages]
        environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"run.py: pip could not install {' '.join(map(str, packages))}:\n{done.stderr}")

    def uninstall(self, package):
        subprocess.run([self.python, "-m", "pip", "uninstall", "--quiet", "--yes", package], check=True)

    def run(self, *command, **more):
        """Without a compiler in PATH, and with a cache folder of its own."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "PYTHON", "LD_"))
        }
        variables |= {"PATH": str(self.folder / "empty"), "XDG_CACHE_HOME": str(self.folder / "cache"), **more}
        done = subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def python_says(self, program, **more):
        return self.run(self.python, "-c", program, **more)


class Trials:
    def __init__(self):
        self.failed = self.passed = 0

    def check(self, name, holds, shown):
        self.passed += bool(holds)
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'} {name}" + ("" if holds else f"\n{shown}"), flush=True)


def readme_program():
    """The first program of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def try_torch(environment, name, trials):
    status, out, err = environment.python_says(ONES)
    trials.check(f'{name}: torch.ones(3, device="headrace")', (status, out) == (0, "[1.0, 1.0, 1.0]\n"), out + err)
    status, out, err = environment.python_says(readme_program())
    trials.check(f"{name}: the README's lines", (status, out) == (0, README_OUTPUT), out + err)
    for level in ("v2", "v3", "v4"):
        status, out, err = environment.python_says(readme_program(), HEADRACE_CPU=level)
        trials.check(f"{name}: the same on {level}", (status, out) == (0, README_OUTPUT), out + err)
    status, out, err = environment.run(environment.folder / "bin/headrace", "doctor")
    trials.check(
        f"{name}: doctor names headrace[compiler]",
        status == 1 and "headrace[compiler]" in out and "oneDNN" in out,
        out + err,
    )
    environment.install("ziglang")
    status, out, err = environment.python_says(KERNELS)
    trials.check(
        f"{name}: kernels are compiled by ziglang",
        (status, out) == (0, "True\n") and "no C compiler" not in err,
        out + err,
    )
    minor = re.search(r"torch (.*)", name)[1]
    (folder,) = environment.folder.glob(f"lib/python3.*/site-packages/headrace/lib/torch-{minor}")
    folder.rename(folder.with_name("torch-1.0"))
    status, out, err = environment.python_says(TORCH_ALONE)
    says = (
        "could not be loaded and is not available: this headrace has libraries for torch 1.0" in err
        and err.count("RuntimeWarning") == 1
    )
    trials.check(
        f"{name}: a wheel without this torch says so, and torch works",
        (status, out, says) == (0, "3.0\n", True),
        out + err,
    )
    folder.with_name("torch-1.0").rename(folder)


def try_without_torch(environment, name, trials):
    status, out, err = environment.python_says(WITHOUT_TORCH)
    trials.check(
        f"{name}: headrace.torch says what is missing", status == 0 and "pip install headrace[torch]" in out, out + err
    )
    status, out, err = environment.run(environment.folder / "bin/headrace", "--version")
    trials.check(
        f"{name}: headrace --version", status == 0 and re.fullmatch(r"headrace \d+\.\d+\.\d+\n", out), out + err
    )


def try_jax(environment, name, trials):
    status, out, err = environment.python_says(JAX_DEVICES, JAX_PLATFORMS="headrace")
    trials.check(f"{name}: JAX_PLATFORMS=headrace", (status, out) == (0, "[headrace:0]\n"), out + err)
    status, out, err = environment.python_says(JAX_DEVICES)
    trials.check(f"{name}: JAX's CPU backend without it", (status, out) == (0, "[CpuDevice(id=0)]\n"), out + err)
    status, out, err = environment.python_says(JAX_PRODUCT, JAX_PLATFORMS="headrace", HEADRACE_DEBUG="1")
    libraries = re.findall(rf"(?:oneDNN|LAPACK): {re.escape(str(environment.folder.resolve()))}.*\.so", err)
    trials.check(
        f"{name}: oneDNN and LAPACK of the environment",
        (status, out, len(libraries)) == (0, "1200.0 2.0\n", 2),
        out + err,
    )
    environment.uninstall("onednn-cpu-gomp")
    status, out, err = environment.python_says(JAX_PRODUCT, JAX_PLATFORMS="headrace")
    trials.check(
        f"{name}: works without oneDNN, and says so once",
        (status, out, err.count("oneDNN could not be loaded")) == (0, "1200.0 2.0\n", 1),
        out + err,
    )


def try_tensorflow(environment, name, trials):
    status, out, err = environment.python_says(TENSORFLOW_PRODUCT)
    trials.check(
        f"{name}: a product on HEADRACE", (status, out) == (0, "2.19.1 HEADRACE:0 1200.0\n"), f"{out}{err[-2000:]}"
    )


def torch_wheels(folders, only):
    """(minor, cpXY, path) of the wheels that the options leave."""
    for folder in folders:
        for path in sorted(folder.glob("torch-*.whl")):
            match = re.match(r"torch-(\d+\.\d+)[^-]*-(cp\d+)-", path.name)
            if match and any(fnmatch.fnmatch(f"{match[2]} {match[1]}", pattern) for pattern in only):
                yield match[1], match[2], path


def has_cuda(environment):
    status, out, _ = environment.python_says(
        "import importlib.util as u, pathlib; "
        "print('cuda: Optional[str] = None' not in (pathlib.Path("
        "u.find_spec('torch').origin).parent / 'version.py').read_text())"
    )
    return out == "True\n"


def link_nvidia(environment, folders):
    (site,) = environment.folder.glob("lib/python3.*/site-packages")
    for folder in folders:
        if (folder / "nvidia").is_dir() and not (site / "nvidia").exists():
            (site / "nvidia").symlink_to(folder / "nvidia")
    return (site / "nvidia").exists()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--torch-wheels", type=pathlib.Path, default=os.environ.get("TORCH_WHEELS"))
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of 'cp311 2.15', or jax, tensorflow")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the environments in this folder")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    folders = [
        pathlib.Path(folder).resolve() for folder in (options.torch_wheels, ROOT / "build/wheels/torches") if folder
    ]
    found, trials = interpreters(), Trials()
    print("interpreters:", ", ".join(f"{name} {path}" for name, path in found.items()), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or pathlib.Path(temporary)
        if "*" in options.only:
            for name, python in found.items():
                environment = Environment(place / f"{name}-without", python)
                environment.install(wheel)
                try_without_torch(environment, f"{name} without torch", trials)
        version = wheel.name.split("-")[1]
        jax_wheels = sorted(wheel.parent.glob(f"headrace_jax-{version}-*.whl"))
        for name, python in found.items() if jax_wheels and {"*", "jax"} & set(options.only) else ():
            if name != "cp310":
                environment = Environment(place / f"{name}-jax", python)
                environment.install(wheel, *jax_wheels, JAX)
                try_jax(environment, f"{name} {JAX}", trials)
        tensorflow_wheels = sorted(wheel.parent.glob(f"headrace_tensorflow-{version}-*.whl"))
        for name, python in found.items() if tensorflow_wheels and {"*", "tensorflow"} & set(options.only) else ():
            if name in ("cp311", "cp312"):
                environment = Environment(place / f"{name}-tensorflow", python)
                environment.install("--find-links", wheel.parent, f"{wheel}[tensorflow]")
                try_tensorflow(environment, f"{name} headrace[tensorflow]", trials)
        for minor, name, path in torch_wheels(folders, options.only):
            if name not in found:
                print(f"skip {name} torch {minor}: no such CPython here")
                continue
            environment = Environment(place / f"{name}-{minor}", found[name])
            environment.install(wheel, *NEEDS)
            environment.install("--no-deps", "--no-compile", path)
            if has_cuda(environment) and not link_nvidia(environment, [folder.parent for folder in folders]):
                print(
                    f"skip {name} torch {minor}: it needs NVIDIA's libraries, "
                    f"and {folders[0].parent}/nvidia is not there"
                )
                continue
            try_torch(environment, f"{name} torch {minor}", trials)
            if not options.keep:
                shutil.rmtree(environment.folder)
    print(f"{trials.passed} passed, {trials.failed} failed")
    sys.exit(trials.failed > 0)


if __name__ == "__main__":
    main()
