#!/usr/bin/env python3
"""Random PyTorch programs on the device and on torch's CPU device, compared step by step; and between the device's
modes, bit by bit.

usage: torch_fuzz.py [--programs N] [--minutes M] [--jobs N] [--seed S] [--compiled N] [--show N] [--report FILE.json]
                     [--no-minimise]

    --programs  how many programs (default HEADRACE_TEST_PROGRAMS or 1000); program i has seed S + i
    --minutes   stops after so many minutes
    --jobs      processes (default: the number of cores)
    --seed      the first seed (default HEADRACE_TEST_SEED or 1)
    --compiled  every Nth program runs once more in a process whose kernels are compiled before their first run
                (HEADRACE_JIT=wait); the bits must be the same (default 0: none)
    --show      how many differences of one kind and operator are printed (default 2)
    --report    writes all differences as JSON

A difference is printed with its seed and a minimised program. Those with a reason are counted: rules.txt. The exit
status is 1 if there was a difference without one.
"""

from fuzz_driver import parse, run_all

if __name__ == "__main__":
    run_all(parse(__doc__, "fuzz_worker.py", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))
