"""Finds the torch that the device is built for.

usage: find_torch.py [FOLDER]     prints torch's folder and its version, a line each, or says what is missing

The library fits the minor version of torch that it was compiled against, and no other. So the package is built for the
torch that the environment has already, also when pip builds in an isolated environment. FOLDER names another place
that has torch/, as site-packages has it.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

OLDEST, NEWEST = (2, 11), (2, 15)
RANGE = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)


def torch_folder():
    spec = importlib.util.find_spec("torch")
    return str(pathlib.Path(spec.origin).parent) if spec and spec.origin else None


def torch_folder_outside():
    """The folder in which Python finds torch without PYTHONPATH and PYTHONNOUSERSITE, with which pip hides it."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    command = [sys.executable, __file__, "--here"]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip() or None


def version_of(folder):
    """The version of the torch in a folder; exits with a message where the device can't be built for it."""
    text = (pathlib.Path(folder) / "version.py").read_text(encoding="utf-8")
    version = re.search(r"^__version__ = '(\d+)\.(\d+)([^']*)'", text, re.MULTILINE)
    minor = (int(version[1]), int(version[2])) if version else None
    if minor is None or not OLDEST <= minor <= NEWEST:
        found = version[1] + "." + version[2] + version[3] if version else "of unknown version"
        sys.exit(f"headrace: torch {found} in {folder} is not one that the device can be built for: install {RANGE}.")
    return "{}.{}{}".format(*version.groups())


def find():
    """Returns torch's folder and version; exits with a message where there is none to build for."""
    folder = torch_folder() or torch_folder_outside()
    if folder is None:
        sys.exit(
            f"headrace: {sys.executable} has no torch. The device is built for the torch that is installed: install "
            "torch"
            f" {RANGE} first. Where it is installed and the build is isolated from it (uv, python -m build), install"
            " the packages of build-system.requires in pyproject.toml too and build with --no-build-isolation."
        )
    return folder, version_of(folder)


def main():
    if sys.argv[1:] == ["--here"]:
        print(torch_folder() or "")
    elif sys.argv[1:]:
        folder = os.path.join(os.path.abspath(sys.argv[1]), "torch")
        print(folder, version_of(folder), sep="\n")
    else:
        print(*find(), sep="\n")


if __name__ == "__main__":
    main()
