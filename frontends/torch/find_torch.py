"""Finds the torch that the device is built for, and makes the package depend on that version.

usage: find_torch.py          prints torch's folder and its version, a line each, or says what is missing

The libraries fit the minor version of torch that they were compiled against, and no other. So the package is built for
the torch that the environment has already, also when pip builds in an isolated environment, and its wheel depends on
that version. As a provider of scikit-build-core's dynamic metadata this is asked before anything is downloaded.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

OLDEST, NEWEST = (2, 11), (2, 13)
RANGE = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
LIBRARIES = [
    f"{package}; platform_system == 'Linux' and platform_machine == 'x86_64'"
    for package in ("onednn-cpu-gomp", "scipy-openblas32")
]


def torch_folder():
    spec = importlib.util.find_spec("torch")
    return str(pathlib.Path(spec.origin).parent) if spec and spec.origin else None


def torch_folder_outside():
    """Where Python finds torch without what pip hides it with: PYTHONPATH and PYTHONNOUSERSITE."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    command = [sys.executable, __file__, "--here"]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip() or None


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
    text = (pathlib.Path(folder) / "version.py").read_text(encoding="utf-8")
    version = re.search(r"^__version__ = '(\d+)\.(\d+)([^']*)'", text, re.MULTILINE)
    minor = (int(version[1]), int(version[2])) if version else None
    if minor is None or not OLDEST <= minor <= NEWEST:
        found = version[1] + "." + version[2] + version[3] if version else "of unknown version"
        sys.exit(f"headrace: torch {found} in {folder} is not one that the device can be built for: install {RANGE}.")
    return folder, "{}.{}{}".format(*version.groups())


class Provider:
    """The project's dependencies, as scikit-build-core asks for them."""

    def build_state(self, build_state):
        self.is_source = build_state == "sdist"

    def dynamic_metadata(self, settings, project):
        if self.is_source:
            torch = "torch>={}.{},<{}.{}".format(*OLDEST, NEWEST[0], NEWEST[1] + 1)
        else:
            torch = "torch=={}.{}.*".format(*find()[1].split(".")[:2])
        return {"dependencies": [torch, *LIBRARIES]}

    def dynamic_wheel(self, settings):
        return {"dependencies": True}


if __name__ == "__main__":
    print(torch_folder() or "" if "--here" in sys.argv else "\n".join(find()))
