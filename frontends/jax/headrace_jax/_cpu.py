"""Programs that name JAX's CPU platform run here, too: its custom calls are ours.

- A primitive that has a lowering rule for the CPU, and none for this platform or for all, uses that rule.
- `jax.lax.platform_dependent` takes the branch of the CPU if it has none for this platform and no default.
- Functions that were exported for the CPU (jax.export) can be called.
"""

import dataclasses
import functools

from headrace_jax import _private

CPU = "cpu"


def _named(platform, branches):
    """Branches by platforms, in which that of the CPU is this platform's, too, if there is no other one."""
    if branches is None or None in branches or any(platform in names for names in branches):
        return branches
    return tuple((*names, platform) if CPU in names else names for names in branches)


def _branch_rule(platform, parameter, original):
    def rule(context, *operands, **parameters):
        if parameter in parameters:
            parameters[parameter] = _named(platform, parameters[parameter])
        return original(context, *operands, **parameters)

    return rule


def _exported_rule(platform, original):
    def rule(context, *operands, exported):
        wanted, found = context.module_context.platforms, exported.platforms
        if platform in wanted and CPU not in wanted and platform not in found and CPU in found:
            names = tuple(platform if name == CPU else name for name in found)
            exported = dataclasses.replace(exported, platforms=names)
        return original(context, *operands, exported=exported)

    return rule


def _replace(platform, primitive, make):
    """Makes the rule of all platforms a primitive's new one, once."""
    from jax.interpreters import mlir

    original = _private.default_rule(primitive)
    if original is None or getattr(original, "platform", None) == platform:
        return
    rule = make(original)
    rule.platform = platform
    mlir.register_lowering(primitive, rule)


def register(platform):
    """Gives a platform the rules of the CPU that it lacks."""
    _private.fall_back_to_rules(platform, CPU)
    for primitive, parameter in _private.branch_primitives():
        _replace(platform, primitive, functools.partial(_branch_rule, platform, parameter))
    primitive = _private.exported_primitive()
    if primitive is not None:
        _replace(platform, primitive, functools.partial(_exported_rule, platform))
