"""One process of the fuzzer: reads seeds from standard input, a line each, and answers each by a line of JSON."""

import hashlib
import json
import os
import sys
import time
import traceback
import warnings

os.environ.setdefault("HEADRACE_TUNING", "off")  # earlier measurements on this machine must not affect a test
os.environ.setdefault("HEADRACE_TF32", "off")
warnings.filterwarnings("ignore")

import headrace.torch  # noqa: E402, F401
import torch  # noqa: E402
from fuzz_compare import bytes_of  # noqa: E402
from fuzz_generate import program_of  # noqa: E402
from fuzz_minimise import repro_of  # noqa: E402
from fuzz_run import run_program, state  # noqa: E402


def digest(steps):
    """One word for all bits that the program leaves in the default mode; NaN is NaN."""
    text = hashlib.sha256()
    for name, (_, bits) in sorted((state(steps, "fuse", reads=False) or {}).items()):
        if bits.is_floating_point():
            bits = torch.where(bits.isnan(), torch.full_like(bits, torch.nan), bits)
        text.update(name.encode() + (b"" if bits.is_complex() else bytes_of(bits).numpy().tobytes()))
    return text.hexdigest()


def answer(seed, minimise):
    begin = time.time()
    steps = program_of(seed)
    found, excused = run_program(steps)
    for difference in found:
        difference.seed = seed
        if minimise:
            difference.repro = repro_of(steps, difference)
    operations = sum(step.op not in ("data", "del", "read") for step in steps)
    return {
        "seed": seed,
        "steps": operations,
        "found": [difference.record() for difference in found],
        "excused": excused,
        "digest": digest(steps),
        "seconds": round(time.time() - begin, 3),
    }


def answer_or_error(seed, minimise):
    """Like answer; an error of the fuzzer itself counts as a difference, too."""
    try:
        return answer(seed, minimise)
    except Exception as error:  # noqa: BLE001
        text = "".join(traceback.format_exception(error)[-4:])
        found = {"kind": "fuzzer", "op": type(error).__name__, "seed": seed, "line": "", "detail": text}
        return {"seed": seed, "steps": 0, "found": [found], "excused": [], "digest": "", "seconds": 0}


def main():
    torch.set_num_threads(1)
    minimise = "--no-minimise" not in sys.argv
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # all other output goes elsewhere
    for line in sys.stdin:
        out.write(json.dumps(answer_or_error(int(line), minimise)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
