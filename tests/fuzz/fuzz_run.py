"""Runs one program: beside torch's CPU device, step by step, and in each mode of the device for itself.

`check` runs it in strict mode. After each step its results are compared with the CPU's, then the CPU's tensors take
the device's bits: so each step begins alike on both, and a difference belongs to one line. `state` runs it without
looking, with looks at the places that the program marks, or strictly, and gives the bits that it leaves; all of them
must agree.
"""

import re
from dataclasses import dataclass, field

import torch
from fuzz_compare import WIDE, Mismatch, bytes_of, compare_form, compare_values, plain, same_bits
from fuzz_data import environment
from fuzz_generate import ends_torch, overlaps
from fuzz_rules import excuse
from fuzz_variants import VARIANTS

DEVICE = torch.device("headrace")


@dataclass
class Difference:
    """The difference at one step. `kind`: value, dtype, shape, strides, alias, type, error, accepts, refuses, bits,
    form, crash or hang."""

    kind: str
    op: str
    step: int
    line: str
    detail: str
    seed: int = 0
    dtypes: str = ""
    setup: str = ""
    repro: str = ""
    # For the conditions of rules: the values that differ and the result that has them, the strides of the inputs, and
    # whether the step reads memory that it writes, as other elements. Between modes, `again` gives the difference in a
    # variant of the program.
    mismatch: Mismatch = None
    name: str = ""
    strides: dict = field(default_factory=dict)
    reads_written: bool = False
    again: object = None

    def record(self):
        names = ("kind", "op", "step", "line", "detail", "seed", "dtypes", "setup", "repro")
        return {name: getattr(self, name) for name in names}

    def same_kind(self, other):
        return other is not None and (self.kind, self.op) == (other.kind, other.op)


def names_in(line):
    return list(dict.fromkeys(re.findall(r"\bv\d+\b", line)))


def short(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


def attempt(code, env):
    try:
        exec(code, env)
        return None
    except Exception as error:  # noqa: BLE001: every exception is an outcome
        return error


def storage_bytes(tensor):
    """The bytes of the tensor's whole storage, as a tensor on its device."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def widened(tensor, with_integers):
    """A copy in double precision; of integers on request."""
    is_integer = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return tensor.clone().to(torch.float64 if is_integer and with_integers else WIDE.get(tensor.dtype, tensor.dtype))


class Check:
    """One program in strict mode beside the CPU."""

    def __init__(self, steps):
        self.steps = steps
        self.host, self.ours = environment(torch.device("cpu")), environment(DEVICE)
        self.found, self.excused = [], []  # differences; (rule, op) of those that have a reason

    def run(self):
        """The differences that no rule excuses."""
        torch.headrace.set_mode("strict")
        try:
            for index, step in enumerate(self.steps):
                self.step(index, step)
        finally:
            torch.headrace.set_mode("fuse")
        return self.found

    def step(self, index, step):
        names = names_in(step.line)
        if any(name not in self.host and name not in step.makes for name in names):
            return  # of a step that was refused, or that a minimised program lacks
        if ends_torch(step, self.host):
            self.drop(step)
            return
        before = {name: self.host[name].clone() for name in names if name in self.host and name not in step.makes}
        strides = {name: self.host[name].stride() for name in before}
        pairs = [(name, written) for written in step.writes for name in before if name != written]
        reads_written = any(self.is_other_part(name, written) for name, written in pairs)

        def note(kind, detail, mismatch=None, name=""):
            found = Difference(kind, step.op, index, step.line, detail, mismatch=mismatch, name=name)
            found.strides, found.reads_written = strides, reads_written
            self.note(found, before)

        code = compile(step.line, "<fuzz>", "exec")
        expected, actual = attempt(code, self.host), attempt(code, self.ours)
        if expected is not None or actual is not None:
            self.compare_errors(step, expected, actual, note)
            self.drop(step)
            return
        for name in [*step.makes, *step.writes]:
            theirs, mine = self.host[name], self.ours[name]
            form = compare_form(mine, theirs) or self.compare_aliases(name, step)
            if form is not None:
                note(*form)
                if form[0] != "strides":
                    self.drop(step)
                    return
            wide = lambda name=name: self.in_double(step, before, name)  # noqa: E731
            mismatch = compare_values(step.op, mine, theirs, list(before.values()), wide)
            if mismatch is not None:
                note("value", mismatch.detail, mismatch, name)
        self.synchronize(step)

    def is_other_part(self, name, written):
        """True if the variables share memory, but are not the same elements of it."""
        a, b = self.host[name], self.host[written]
        parts = [(t.storage_offset() * t.element_size(), t.dtype, t.shape, t.stride()) for t in (a, b)]
        return a.untyped_storage()._cdata == b.untyped_storage()._cdata and parts[0] != parts[1]

    def compare_errors(self, step, expected, actual, note):
        if actual is None:
            note("accepts", f"no error; torch: {short(expected)}")
            for name in step.writes:
                self.take_bits(self.host[name], self.ours[name])
        elif expected is None:
            note("refuses", short(actual))
            for name in step.writes:
                self.take_bits(self.host[name], self.ours[name])
        elif not isinstance(actual, type(expected)) and not isinstance(expected, type(actual)):
            note("error", f"{short(actual)}; torch: {short(expected)}")
        else:  # some of torch's kernels have written a part before they refuse
            for name in step.writes:
                self.take_bits(self.host[name], self.ours[name])

    def take_bits(self, theirs, mine):
        storage_bytes(theirs).copy_(storage_bytes(mine).cpu()[: theirs.untyped_storage().nbytes()])

    def drop(self, step):
        """After an error or another form, later steps don't use the step's result."""
        for name in step.makes:
            self.host.pop(name, None), self.ours.pop(name, None)

    def compare_aliases(self, name, step):
        """A result is a view of the same variables on both devices."""
        others = [n for n in self.host if re.fullmatch(r"v\d+", n) and n not in step.makes]
        memory = lambda env, n: env[n].untyped_storage()._cdata  # noqa: E731
        mine, theirs = ({n for n in others if memory(e, n) == memory(e, name)} for e in (self.ours, self.host))
        return None if mine == theirs else ("alias", f"shares memory with {sorted(mine)}, torch {sorted(theirs)}")

    def note(self, difference, before):
        difference.dtypes = ",".join(str(t.dtype).removeprefix("torch.") for t in before.values())
        difference.setup = "\n".join(literal(name, value, difference.strides[name]) for name, value in before.items())
        rule = excuse(difference, before)
        if rule is None:
            self.found.append(difference)
        else:
            self.excused.append((rule, difference.op))

    def in_double(self, step, before, name):
        line = re.sub(r"dtype=torch\.(float16|bfloat16|float32)", "dtype=torch.float64", step.line)
        for with_integers in (False, True):
            env = environment(torch.device("cpu")) | {n: widened(t, with_integers) for n, t in before.items()}
            done = attempt(line, env) is None and isinstance(env.get(name), torch.Tensor)
            if done and env[name].dtype in (torch.float64, torch.complex128):
                return env[name]
        return None

    def synchronize(self, step):
        """The CPU's tensors take the device's bits: written ones in place, new ones with the device's strides."""
        known = {
            self.host[n].untyped_storage()._cdata for n in self.host if re.fullmatch(r"v\d+", n) and n not in step.makes
        }
        copies = {}
        for name in [*step.makes, *step.writes]:
            theirs, mine = self.host[name], self.ours[name]
            if theirs.untyped_storage()._cdata in known:
                if name in step.writes:
                    self.take_bits(theirs, mine)
                continue
            key = mine.untyped_storage()._cdata
            if key not in copies:
                copies[key] = storage_bytes(mine).cpu()
            if mine.is_conj() or mine.is_neg():
                continue
            fresh = torch.empty(0, dtype=mine.dtype)
            self.host[name] = fresh.set_(
                copies[key].untyped_storage(), mine.storage_offset(), mine.shape, mine.stride()
            )


def literal(name, tensor, strides):
    """A line that makes the tensor with these strides."""
    tensor = plain(tensor)
    dtype, values = str(tensor.dtype), bytes_of(tensor).tolist() if tensor.dtype == torch.bool else tensor.tolist()
    if tensor.numel() > 64:
        return f"# {name}: {list(tensor.shape)} {dtype}, too large to show"
    if tensor.dtype == torch.bool and max(values, default=0) > 1:
        made = f"torch.tensor({values}, dtype=torch.uint8, device=d).view(torch.bool).reshape({list(tensor.shape)})"
    elif tensor.dtype.is_complex:
        real, imaginary = torch.view_as_real(tensor).unbind(-1)
        real, imaginary = (f"torch.tensor({part.tolist()}, dtype={part.dtype}, device=d)" for part in (real, imaginary))
        made = f"torch.complex({real}, {imaginary})"
    else:
        made = f"torch.tensor({tensor.tolist()}, dtype={dtype}, device=d)"
        made += f".reshape({list(tensor.shape)})" if tensor.numel() == 0 else ""
    if strides != tensor.stride() and tensor.numel() > 0 and not overlaps(tensor.shape, strides):
        made = f"torch.empty_strided({list(tensor.shape)}, {list(strides)}, dtype={dtype}, device=d).copy_({made})"
    return f"{name} = {made}"


def look(tensor, how):
    """A program's action between steps: reads a value, commits, empties the cache."""
    if how == 0:
        torch.headrace.synchronize()
    elif how == 1:
        torch.headrace.empty_cache()
    elif how == 2:
        repr(tensor)
    else:
        plain(tensor)


def state(steps, mode, reads, variant=None):
    """{variable: (strides, bits)} after the program in a mode; with reads at the marked places, or with none."""
    env = environment(DEVICE)
    if reads:
        env["read"] = look
    torch.headrace.set_mode(mode)
    try:
        for step in steps:
            names = names_in(step.line)
            if any(name not in env and name not in step.makes for name in names):
                continue
            if variant is not None:
                variant.before(step, env)
            if attempt(compile(step.line, "<fuzz>", "exec"), env) is not None:
                for name in step.makes:
                    env.pop(name, None)
            elif variant is not None:
                variant.after(step, env)
        values = {name: env[name] for name in env if re.fullmatch(r"v\d+", name)}
        torch.headrace.synchronize()
        return {name: (value.stride(), plain(value)) for name, value in values.items()}
    except Exception:  # noqa: BLE001: a late error, of a step that the strict run rejects; earlier steps are done
        return None
    finally:
        torch.headrace.set_mode("fuse")


def compare_states(steps, states):
    """The first variable whose bits are not the same in all modes, as a difference of the step that wrote it last."""
    if any(state is None for state in states.values()):  # then steps after the error have no results
        return None
    first_mode, first = next(iter(states.items()))
    for mode, other in states.items():
        if first.keys() != other.keys():
            return Difference("form", "program", len(steps) - 1, "", f"{first_mode} and {mode} have other variables")
        for name, (strides, bits) in first.items():
            other_strides, other_bits = other[name]
            same = strides == other_strides and bits.shape == other_bits.shape and bits.dtype == other_bits.dtype
            if same and same_bits(bits, other_bits):
                continue
            index = max(i for i, step in enumerate(steps) if name in step.makes or name in step.writes)
            step = steps[index]
            mismatch = compare_values(step.op, other[name][1], bits, [], lambda: None) if same else None
            detail = "another form" if not same else mismatch.detail if mismatch else "within bounds, but other bits"
            return Difference("bits", step.op, index, step.line, f"{name} in {mode} (then in {first_mode}): {detail}")
    return None


def modes(steps, variant=None):
    return {
        "strict": state(steps, "strict", False, variant),
        "default": state(steps, "fuse", False, variant),
        "reads": state(steps, "fuse", True, variant),
    }


def run_program(steps):
    """(the differences, excused ones)."""
    check = Check(steps)
    found = check.run()
    other = compare_states(steps, modes(steps))
    if other is not None:
        other.again = lambda variant: compare_states(steps, modes(steps, VARIANTS[variant](steps)))
        rule = excuse(other, {})
        if rule is None:
            found.append(other)
        else:
            check.excused.append((rule, other.op))
    return found, check.excused
