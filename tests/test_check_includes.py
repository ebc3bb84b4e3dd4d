"""The check of the folders' layers (scripts/check_includes.py) reports violations and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "check_includes.py"
FILES = [
    "src/base/arena.h",
    "src/core/ops/op.h",
    "src/runtime/device.h",
    "src/drivers/null/null.h",
    "include/headrace/a.h",
]


def check(root: Path, path: str, include: str) -> tuple[int, str]:
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"/* first line */\n#include {include}\n")
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("src/core/shape.c", '"base/arena.h"'),
        ("src/core/shape.c", '"core/ops/op.h"'),
        ("src/core/shape.c", '"headrace/a.h"'),
        ("src/core/shape_test.c", '"hr_test.h"'),
        ("src/drivers/null/null.c", '"null.h"'),
        ("src/drivers/null/null.c", '"runtime/device.h"'),
        ("src/base/thread.c", "<pthread.h>"),
        ("frontends/torch/map.cpp", "<torch/extension.h>"),
    ],
)
def test_allowed(tmp_path, path, include):
    code, output = check(tmp_path, path, include)
    assert code == 0, output


@pytest.mark.parametrize(
    ("path", "include", "words"),
    [
        ("src/base/text.c", '"core/ops/op.h"', "base may not include core"),
        ("src/drivers/cpu/cpu.c", '"core/ops/op.h"', "drivers may not include core"),
        ("src/drivers/cpu/cpu.c", '"drivers/null/null.h"', "sibling drivers/null"),
        ("src/engine/stream.c", '"drivers/null/null.h"', "engine may not include drivers"),
        ("src/core/shape.c", '"hr_test.h"', "*_test.c alone"),
        ("src/core/shape.c", '"core/gone.h"', "neither below src/"),
        ("src/drivers/cuda/cuda.c", "<cuda.h>", "vendor's header"),
        ("src/core/shape.c", "<omp.h>", "vendor's header"),
        ("frontends/torch/map.cpp", '"core/ops/op.h"', "only include/ may be seen"),
        ("include/headrace/b.h", '"base/arena.h"', "internal"),
        ("src/core/shape.cpp", "<vector>", "C++ lives in frontends/torch alone"),
    ],
)
def test_forbidden(tmp_path, path, include, words):
    code, output = check(tmp_path, path, include)
    assert code == 1
    assert words in output


def test_a_circle_of_files_is_forbidden(tmp_path):
    code, output = check(tmp_path, "src/engine/a.c", '"engine/b.h"')
    folder = tmp_path / "src/engine"
    for name, include in (("a.h", ""), ("b.h", '#include "engine/c.h"'), ("c.h", "")):
        (folder / name).write_text(include + "\n")
    code, output = check(tmp_path, "src/engine/a_test.c", '"engine/a.h"')
    assert code == 0, output
    code, output = check(tmp_path, "src/engine/c.c", '"engine/a.h"')
    assert code == 1
    assert "a -> b -> c -> a" in output
