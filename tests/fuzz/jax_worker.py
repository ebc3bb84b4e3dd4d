"""One process of jax_fuzz.py: reads requests from standard input, a line each, and answers each by a line of JSON.

A request is a seed, or a seed and the numbers of the steps that run on Headrace: "12 0,3,4". The other steps' values
then come from the CPU backend. "text" in front asks for the script alone.
"""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import warnings

os.environ["JAX_PLATFORMS"] = "headrace,cpu"
os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("HEADRACE_TUNING", "off")  # earlier measurements on this machine must not affect a test
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_allow_excess_precision=false")
warnings.filterwarnings("ignore")

import headrace_jax  # noqa: E402

headrace_jax.initialize()
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax_compare import WIDE, compare, is_float  # noqa: E402
from jax_data import LITERAL_MAX, literal  # noqa: E402
from jax_generate import NAMES, evaluate, program_of  # noqa: E402

PRELUDE = """import os
os.environ |= {"JAX_PLATFORMS": "headrace,cpu", "JAX_ENABLE_X64": "1"}
import headrace_jax; headrace_jax.initialize()
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from numpy import inf, nan"""


def on(platform, function, *arguments):
    """The function compiled for the platform, and its results as NumPy's arrays."""
    with jax.default_device(jax.devices(platform)[0]):
        return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


class Check:
    """One program. `kept` holds the numbers of the steps that run on Headrace."""

    def __init__(self, seed, kept=None):
        self.seed = seed
        self.inputs, self.steps = program_of(seed)
        self.kept = list(range(len(self.steps))) if kept is None else kept
        self.values = {step.makes[0]: eval(step.text, NAMES) for step in self.inputs}  # noqa: S307
        self.found, self.excused, self.digest = [], [], ""

    def chosen(self, kept=None):
        return [self.steps[i] for i in (self.kept if kept is None else kept)]

    def arguments(self, kept=None):
        """Names that the steps read and do not make. The CPU backend computes those that other steps make."""
        steps = self.chosen(kept)
        made = {name for step in steps for name in step.makes}
        names = sorted({name for step in steps for name in step.reads} - made, key=lambda name: int(name[1:]))
        for name in names:
            self.host_value(name)
        return names

    def host_value(self, name):
        if name not in self.values:
            step = next(step for step in self.steps if name in step.makes)
            operands = {read: self.host_value(read) for read in step.reads}
            results = on("cpu", lambda operands: evaluate(step, operands), operands)
            self.values |= zip(step.makes, results, strict=True)
        return self.values[name]

    def function(self, kept=None, leaves=False):
        """A function of a dictionary of arguments; it returns all values of the steps, or those that no step reads."""
        steps = self.chosen(kept)
        read = {name for step in steps for name in step.reads}

        def run(arguments):
            values = dict(arguments)
            for step in steps:
                values |= zip(step.makes, evaluate(step, values), strict=True)
            made = [name for step in steps for name in step.makes if not leaves or name not in read]
            return {name: values[name] for name in made}

        return run

    def run_device(self, kept=None, leaves=False):
        arguments = {name: self.values[name] for name in self.arguments(kept)}
        return on("headrace", self.function(kept, leaves), arguments)

    def run(self):
        """Runs and compares. The device's own values are the operands of the CPU backend's steps."""
        try:
            device = self.run_device()
        except Exception as error:  # noqa: BLE001
            self.refused(error)
            return self
        text = hashlib.sha256()
        for name in sorted(device):
            text.update(name.encode() + plain(device[name]).tobytes())
        self.digest = text.hexdigest()
        known = {name: self.values[name] for name in self.arguments()} | device
        for step, want in zip(self.chosen(), self.expected(known), strict=True):
            if want is not None:
                self.compare_step(step, [device[name] for name in step.makes], want, known)
        self.compare_leaves(device)
        return self

    def expected(self, known):
        """Each step's results on the CPU backend: all in one program if it compiles, else one by one."""
        steps = self.chosen()
        operands = [{name: known[name] for name in step.reads} for step in steps]
        run = lambda all_operands: [evaluate(s, o) for s, o in zip(steps, all_operands, strict=True)]  # noqa: E731
        try:
            return on("cpu", run, operands)
        except Exception:  # noqa: BLE001
            return [self.expected_alone(step, o) for step, o in zip(steps, operands, strict=True)]

    def expected_alone(self, step, operands):
        try:
            return on("cpu", lambda operands: evaluate(step, operands), operands)
        except Exception as error:  # noqa: BLE001
            self.excused.append((f"the CPU backend refuses: {str(error)[:60]}", step.op))
            return None

    def compare_step(self, step, got, want, known):
        operands = [known[name] for name in step.reads]
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            magnitude = lambda k=k: again(step, known, k, lambda a: np.abs(wide(a)).astype(wide(a).dtype))  # noqa: E731
            verdict = compare(step.kind, g, w, operands, magnitude, lambda k=k: again(step, known, k, wide))
            if verdict and verdict[0] == "excused":
                self.excused.append((verdict[1], step.op))
            elif verdict:
                self.add(verdict[0], step, verdict[1])
                return

    def compare_leaves(self, device):
        """With other results other kernels are fused; the bits must be the same."""
        for name, array in self.run_device(leaves=True).items():
            if not same_bits(array, device[name]):
                step = next(step for step in self.chosen() if name in step.makes)
                wrong = np.flatnonzero(array.reshape(-1) != device[name].reshape(-1))
                detail = f"{name}: {wrong.size} elements differ if the program returns its last values alone"
                self.add("bits", step, detail)

    def refused(self, error):
        """The steps that are refused alone, else the program."""
        before = len(self.found) + len(self.excused)
        for i in self.kept if len(self.kept) > 1 else []:
            try:
                self.arguments([i])
                self.run_device([i])
            except Exception as other:  # noqa: BLE001
                self.add_error(self.steps[i], other)
        if len(self.found) + len(self.excused) == before:
            self.add_error(self.chosen()[-1], error)

    def add_error(self, step, error):
        """Adds it if the CPU backend accepts the step."""
        try:
            operands = {name: self.host_value(name) for name in step.reads}
        except Exception as other:  # noqa: BLE001
            self.excused.append((f"the CPU backend refuses: {str(other)[:60]}", step.op))
            return
        if self.expected_alone(step, operands) is not None:
            self.add("error", step, str(error)[:300])

    def add(self, kind, step, detail):
        found = {"kind": kind, "op": step.op, "seed": self.seed, "line": step.line(), "detail": detail}
        self.found.append(found | {"step": self.steps.index(step)})

    def script(self):
        """A program that prints the results of both platforms."""
        names, steps = self.arguments(), self.chosen()
        made = {step.makes[0]: step.text for step in self.inputs}
        large = [name for name in names if name in made and self.values[name].size > LITERAL_MAX]
        lines = [PRELUDE, "from jax_data import data  # PYTHONPATH=tests/fuzz"] if large else [PRELUDE]
        lines += [f"{name} = {made[name] if name in large else literal(self.values[name])}" for name in names]
        lines += [f"def f({', '.join(names)}):", *(f"    {step.line()}" for step in steps)]
        lines += [f"    return {', '.join(name for step in steps for name in step.makes)}"]
        lines += ['for platform in "headrace", "cpu":', "    with jax.default_device(jax.devices(platform)[0]):"]
        lines += [f"        print(platform, jax.jit(f)({', '.join(names)}))"]
        return "\n".join(lines)


def plain(array):
    """The array with one NaN for all, whose bits may differ."""
    if not is_float(array):
        return array
    array = np.array(array, order="C").reshape(-1)
    parts = array.view(array.real.dtype)
    parts[parts != parts] = np.nan
    return array


def same_bits(a, b):
    if a.tobytes() == b.tobytes():
        return True
    with np.errstate(all="ignore"):
        return is_float(a) and bool(((a == b) | (a != a) & (b != b)).all())


def wide(array):
    return array.astype(WIDE.get(array.dtype.name, array.dtype)) if is_float(array) else array


def again(step, known, k, change):
    """The step's result k on changed operands, or None."""
    try:
        operands = {name: change(known[name]) if is_float(known[name]) else known[name] for name in step.reads}
        result = on("cpu", lambda operands: evaluate(step, operands), operands)[k]
        return result.astype(np.float64 if result.dtype.kind != "c" else np.complex128)
    except Exception:  # noqa: BLE001
        return None


def reduced(seed, found):
    """The numbers of the steps that the difference needs: others are left out, or become inputs, while it stays."""

    def stays(kept):
        again = Check(seed, kept).run().found
        return any(f["kind"] == found["kind"] and f["op"] == found["op"] for f in again)

    if stays([found["step"]]):
        return [found["step"]]
    kept = list(range(found["step"] + 1))
    for i in list(reversed(kept[:-1])) if stays(kept) else []:
        candidate = [k for k in kept if k != i]
        if stays(candidate):
            kept = candidate
    return kept


def answer(request, reduce):
    words, begin = request.split(), time.time()
    if words[0] == "text":
        check = Check(int(words[1]), [int(i) for i in words[2].split(",")] if len(words) > 2 else None)
        answered = {"seed": check.seed, "repro": check.script(), "steps": len(check.steps), "found": []}
        return answered | {"op": check.chosen()[-1].op}
    check = Check(int(words[0]), [int(i) for i in words[1].split(",")] if len(words) > 1 else None).run()
    for found in check.found:
        if reduce:
            kept = reduced(check.seed, found)
            found["repro"] = Check(check.seed, kept).script()
    jax.clear_caches()
    answered = {"seed": check.seed, "steps": len(check.kept), "found": check.found, "excused": check.excused}
    return answered | {"digest": check.digest, "seconds": round(time.time() - begin, 3)}


def answer_or_error(request, reduce):
    """Like answer; an error of the fuzzer itself counts as a difference, too."""
    try:
        return answer(request, reduce)
    except Exception as error:  # noqa: BLE001
        text = "".join(traceback.format_exception(error)[-4:])[-1500:]
        found = {"kind": "fuzzer", "op": type(error).__name__, "seed": request, "line": "", "detail": text}
        return {"seed": request, "steps": 0, "found": [found], "excused": [], "digest": "", "seconds": 0}


def main():
    faulthandler.register(signal.SIGUSR1)  # prints the stack of a program that does not end
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # all other output goes elsewhere
    for line in sys.stdin:
        out.write(json.dumps(answer_or_error(line.strip(), "--no-minimise" not in sys.argv)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
