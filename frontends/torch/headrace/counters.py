"""torch.headrace: counters, modes, and the handling of operators that the device lacks."""

from headrace._library import _C

_MODES = ("fuse", "eager", "strict")
_FALLBACKS = ("error", "warn", "allow")


def stats(device=None):
    """A dict of counters since the first use or the last `reset_stats`; docs/watching.md explains each.

    Operations, commits and their reasons, cache hits, compiles and their time; groups that ran: kernels (interpreted,
    compiled) and library calls, and the bytes they moved; temporaries that got no memory; host fallbacks by operator;
    background compilation; and compiled graphs: captures, runs, and runs operation by operation."""
    result = _C.stats(device)
    result["kernels_compiled"] = result["kernels"] - result["kernels_interpreted"]
    result["fallbacks_by_name"] = _C.fallbacks()
    result["fallbacks"] = sum(result["fallbacks_by_name"].values())
    result["graph_eager_runs"] = _eager_runs
    return result


_eager_runs = 0


def _note_eager_run():
    """A compiled graph ran operation by operation (headrace.torch_compile)."""
    global _eager_runs
    _eager_runs += 1


def reset_stats(device=None):
    """Sets the device's counters to 0, and those of compiled graphs and fallbacks."""
    global _eager_runs
    _eager_runs = 0
    _C.reset_stats(device)


def get_mode():
    """The mode of all devices: "fuse", "eager" or "strict"."""
    return _MODES[_C.mode()]


def set_mode(mode):
    """Sets the mode. fuse: defer and fuse; eager: run each operation at once; strict: also wait for it.

    In strict mode every error is raised at the line that caused it."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    _C.set_mode(_MODES.index(mode))


def get_fallback():
    """The handling of operators that the device lacks: "error", "warn" or "allow"."""
    return _FALLBACKS[_C.fallback()]


def set_fallback(mode):
    """Sets the handling of operators that the device lacks.

    "error" raises; "warn" runs them on the host with a warning, "allow" without one."""
    if mode not in _FALLBACKS:
        raise ValueError(f"fallback must be one of {', '.join(_FALLBACKS)}, not {mode!r}")
    _C.set_fallback(_FALLBACKS.index(mode))


def fallbacks():
    """Host fallbacks by operator: {name: count}."""
    return _C.fallbacks()
