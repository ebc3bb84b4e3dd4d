#!/usr/bin/env python3
"""Random JAX programs on Headrace and on JAX's CPU backend, compared step by step.

usage: jax_fuzz.py [--programs N] [--minutes M] [--jobs N] [--seed S] [--compiled N] [--show N] [--report FILE.json]
                   [--no-minimise]

    --programs  how many programs (default HEADRACE_TEST_PROGRAMS or 1000; with --minutes no limit); program i has
                seed S + i
    --minutes   stops after so many minutes
    --jobs      processes (default: the number of cores)
    --seed      the first seed (default HEADRACE_TEST_SEED or 1)
    --compiled  every Nth program runs once more in a process whose kernels are compiled before their first run
                (HEADRACE_JIT=wait); the bits must be the same (default 0: none)
    --show      how many differences of one kind and operator are printed (default 2)
    --report    writes all differences as JSON

A program is one function under `jit`, which returns all its values. The CPU backend computes each step from Headrace's
values of its operands, so that a bound covers one step. The program runs again with its last values alone as results:
the bits must be the same. A difference is printed as a script. The exit status is 1 if there was one.

HEADRACE_JAX_LIBRARY names the plug-in, and PYTHONPATH has the folder frontends/jax.
"""

from fuzz_driver import parse, run_all


def reduce_end(worker, found):
    """Adds the script of a program that ends its process: steps are left out while it does."""

    def ends(kept):
        answer = worker.ask(f"{found['seed']} {','.join(map(str, kept))}")
        return any(other["kind"] == found["kind"] for other in answer["found"])

    text = worker.ask(f"text {found['seed']}")
    kept = list(range(text["steps"]))
    alone = next((i for i in kept if ends([i])), None)
    if alone is not None:
        kept = [alone]
    for i in kept[:] if len(kept) > 1 else []:
        candidate = [k for k in kept if k != i]
        if len(candidate) > 0 and ends(candidate):
            kept = candidate
    text = worker.ask(f"text {found['seed']} {','.join(map(str, kept))}")
    found["repro"], found["op"] = text.get("repro", ""), text.get("op", "program")


if __name__ == "__main__":
    run_all(parse(__doc__, "jax_worker.py", {}, reduce_end))
