"""Shortens a failing program to the one step with its inputs, or by removing lines."""

from fuzz_operators import Step
from fuzz_run import Check, compare_states, modes, names_in

BETWEEN_MODES = ("bits", "form")


def shows(steps, found):
    """True if the steps give a difference of this kind at this operator."""
    if found.kind in BETWEEN_MODES:
        return found.same_kind(compare_states(steps, modes(steps)))
    return any(found.same_kind(other) for other in Check(steps).run())


def alone(steps, found):
    """The step itself with its inputs as literals, if that shows the difference."""
    step = steps[found.step]
    setup = [Step("data", line, names_in(line)[:1]) for line in found.setup.splitlines()]
    candidate = [*setup, step]
    return candidate if not any("too large" in s.line for s in setup) and shows(candidate, found) else None


def shorter(steps, found, tries=300):
    """The steps without those that the difference does not need: chunks are left out while it stays."""
    steps = steps[: found.step + 1] if found.kind not in BETWEEN_MODES else list(steps)
    size = max(len(steps) // 2, 1)
    while size >= 1 and tries > 0:
        start, changed = 0, False
        while start < len(steps) and tries > 0:
            tries -= 1
            candidate = steps[:start] + steps[start + size :]
            if candidate and shows(candidate, found):
                steps, changed = candidate, True
            else:
                start += size
        if size == 1 and not changed:
            break
        size = max(size // 2, 1)
    return steps


def repro_of(steps, found):
    """A script that shows the difference on the device and, with d = "cpu", torch's result."""
    short = None if found.kind in BETWEEN_MODES else alone(steps, found)
    short = short or shorter(steps, found)
    last = short[-1]
    shown = [*last.makes, *last.writes] or names_in(last.line)[:1]
    head = [
        f"# {found.kind}: {found.detail} (seed {found.seed}); run with PYTHONPATH=tests/fuzz",
        "from fuzz_data import environment",
        "globals().update(environment('headrace'))  # or 'cpu'",
    ]
    return "\n".join([*head, *(step.line for step in short), f"print({', '.join(shown)})"])
