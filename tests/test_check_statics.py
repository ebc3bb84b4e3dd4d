"""scripts/check_statics.py finds the mutable variables of objects, and only those."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts/check_statics.py"

SOURCE = """
static int counted, *pointer = &counted;
int shared = 3;
static _Thread_local int own_of_each_thread;
static const int table[2] = {1, 2};
static const char *const names[2] = {"a", "b"};
static const char *forgotten_const[2] = {"a", "b"};
int use(int i) {
  static long calls;
  return counted++ + *pointer + own_of_each_thread++ + table[i] + names[i][0] + forgotten_const[i][0] + (int)calls++;
}
void set(const char *to, int *at) { forgotten_const[0] = to; pointer = at; }
"""


def load_script():
    spec = importlib.util.spec_from_file_location("check_statics", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("objdump") is None, reason="needs gcc and objdump")
def test_mutable_variables_are_found_and_counted(tmp_path, capsys):
    folder = tmp_path / "CMakeFiles/headrace_objects.dir/src/base"
    folder.mkdir(parents=True)
    (folder / "some.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", folder / "some.c", "-o", folder / "some.c.o"], check=True)
    script = load_script()
    assert script.main([str(tmp_path)]) == 0
    assert "6 mutable variables" in capsys.readouterr().out
    script.LIMIT = 5
    assert script.main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    for name in ("counted", "pointer", "shared", "own_of_each_thread", "forgotten_const", "calls"):
        assert f"src/base/some.c: {name}" in printed
    assert "some.c: table" not in printed and "some.c: names" not in printed


def test_a_folder_without_objects_fails(tmp_path, capsys):
    assert load_script().main([str(tmp_path)]) == 1
    assert "build first" in capsys.readouterr().out
