"""scripts/check_docs.py finds each kind of name that does not exist, and accepts those that do."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "check_docs.py"
FILES = {
    "Makefile": "test: build ## runs the tests\n",
    "src/core/ops/ops.def": 'HR_POINTWISE(ADD, add, 2, "a + b")\nHR_POINTWISE(SUB, sub, 2, "a - b")\n',
    "src/base/env.def": 'HR_ENV_INT(DEBUG, 0, 6, "0", "level")\nHR_ENV_CHOICE(MODE, "fuse|strict", "fuse", "mode")\n',
    "src/core/ops/op.h": "int hr_op_count(void);\n",
    "frontends/torch/map.def": "add.Tensor                 : add(R, self, other)\n",
    "frontends/torch/headrace/torch.py": "def stats():\n    pass\n",
    "tools/headrace.c": '{"run", headrace_run, "run FILE"},\n',
    "docs/coverage.md": "# C\n| op | forward | 672 of 672 | 6059 of 6059 |  |\n"
    "| op | grad | 540 of 540 | 2731 of 2731 |  |\n",
    "docs/page.md": "# A page\n\n## Its second part\n",
}
GOOD = """# Head

[a page](docs/page.md), [a part](docs/page.md#its-second-part), [here](#head), [elsewhere](https://example.org/x.md)
`src/core/ops/op.h`, `core/ops/op.h`, `op.h`, `src/core/`, `src/core/*/op.h`, `hr_op_count`, `HR_OP_ADD`, `hr_op_*`,
`make test`
`torch.headrace.stats()`, `headrace run FILE`, `HEADRACE_DEBUG=6`, `HEADRACE_MODE=strict`, `a/b`, `operations / groups`
2 rows in `ops.def`, 2 environment variables, 672 entries of PyTorch's OpInfo tests, 6,059 pairs of entry and dtype

```
HR_POINTWISE(ADD, add, 2, "a + b")
HR_POINTWISE(SUB, ..., "a - b")
add.Tensor : add(R, self, other)
$ headrace run FILE
make test
```
"""
BAD = [
    ("link", "[a page](docs/other.md)"),
    ("link", "[a part](docs/page.md#its-third-part)"),
    ("file", "`src/core/gone.c`"),
    ("file", "`core/gone.c`"),
    ("file", "`gone.c`"),
    ("file", "`src/session/`"),
    ("function", "`hr_op_gone`"),
    ("function", "calls hr_gone()"),
    ("function", "`HR_OP_GONE`"),
    ("function", "`count_of_nothing`"),
    ("function", "`torch.headrace.gone()`"),
    ("command", "`headrace walk FILE`"),
    ("row", '```\nHR_POINTWISE(ADD, add, 3, "a + b")\n```'),
    ("row", "```\nadd.Tensor : add(R, self)\n```"),
    ("target", "`make gone`"),
    ("target", "```\nmake gone\n```"),
    ("variable", "`HEADRACE_GONE`"),
    ("variable", "`HEADRACE_DEBUG=7`"),
    ("variable", "`HEADRACE_MODE=eager`"),
    ("count", "3 rows in `ops.def`"),
    ("count", "5 environment variables"),
    ("count", "671 entries of PyTorch's OpInfo tests"),
    ("count", "6,058 pairs of entry and dtype"),
    ("count", "2,730 gradients"),
]


def check(root: Path, page: str) -> tuple[int, str]:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "README.md").write_text(page)
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_exists_passes(tmp_path):
    code, printed = check(tmp_path, GOOD)
    assert code == 0, printed


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_what_does_not_exist_fails(tmp_path, kind, text):
    code, printed = check(tmp_path, f"# Head\n\n{text}\n")
    assert code == 1
    assert f"README.md:{4 if '```' in text else 3}: {kind}: " in printed
