"""Shardings that a program over several devices leaves open, by Shardy's propagation.

JAX marks the arguments whose shardings are known, and constraints inside. Shardy's passes, which jaxlib has, follow
them through the operations of a copy of the program; the shardings that arguments and results of `main` have in the end
become those of the program that is compiled. If each device can compute its parts (_partition.py), the program does so.

jax.debug.inspect_array_sharding is a custom call until then: its function gets the sharding that is found.
"""

import itertools

import numpy as np
from headrace_jax import _partition, _private

SHARDING = "sdy.sharding"
INSPECT = "headrace.inspect_sharding"
PASSES = "builtin.module(sdy-propagation-pipeline)"


def _is_shardy(module):
    return any(op.operation.name == "sdy.mesh" for op in module.body.operations)


def _main(module):
    from jax.extend.mlir import ir

    for op in module.body.operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            return op
    return None


def _meshes(module):
    return {str(op.attributes["sym_name"]): str(op.attributes["mesh"])
            for op in module.body.operations if op.operation.name == "sdy.mesh"}


def _with_shardings(attributes, found):
    """Attributes of arguments or results, with the shardings of others."""
    from jax.extend.mlir import ir

    made = []
    for own, other in zip(attributes, found):
        entries = {entry.name: entry.attr for entry in ir.DictAttr(own)}
        if SHARDING in ir.DictAttr(other):
            entries[SHARDING] = ir.DictAttr(other)[SHARDING]
        made.append(ir.DictAttr.get(entries))
    return ir.ArrayAttr.get(made)


def _attributes(main, name, count):
    from jax.extend.mlir import ir

    return ir.ArrayAttr(main.attributes[name]) if name in main.attributes else [ir.DictAttr.get({})] * count


def _follow(module):
    """A copy of a program with shardings everywhere; the program itself if none are known."""
    from jax.extend.mlir import ir

    if not _is_shardy(module) or _main(module) is None:
        return module
    followed = ir.Module.parse(_private.module_bytes(module))
    _partition.set_rules(followed)
    try:
        _private.run_passes(followed, PASSES)
    except ir.MLIRError:
        return module
    return followed if _main(followed) is not None and _meshes(followed) == _meshes(module) else module


def _set_shardings(module, followed):
    """Gives main's arguments and results the shardings of another program's."""
    from jax.extend.mlir import ir

    target, source = _main(module), _main(followed)
    type_ = ir.FunctionType(ir.TypeAttr(target.attributes["function_type"]).value)
    for name, count in (("arg_attrs", len(type_.inputs)), ("res_attrs", len(type_.results))):
        own, other = (_attributes(main, name, count) for main in (target, source))
        target.attributes[name] = _with_shardings(own, other)


def propagate(module):
    """The program with the shardings that follow from those it has; the same object if there are none."""
    from jax.extend.mlir import ir

    with module.context, ir.Location.unknown():
        followed = _follow(module)
        inspected = _inspections(followed)
        for call in inspected:
            _inspect(call)
        if followed is module and not inspected:
            return module
        made = ir.Module.parse(_private.module_bytes(module))
        for call in _inspections(made) + (inspected if followed is not module else []):
            call.erase()
        if followed is not module:
            _set_shardings(made, followed)
            made = _partition.divide(followed, made)
        return made


# ---- jax.debug.inspect_array_sharding ----

_numbers = itertools.count()
_inspected = {}  # by number: the function and the devices


def _inspections(module):
    from jax.extend.mlir import ir

    found = []

    def visit(op):
        if op.name == "stablehlo.custom_call" and ir.StringAttr(op.attributes["call_target_name"]).value == INSPECT:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _sharding_of(value):
    """Shardy's sharding of a value; None: it has none."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import sdy

    owner = value.owner
    if isinstance(owner, ir.Block):
        function, number = owner.owner, ir.BlockArgument(value).arg_number
        if function.operation.name != "func.func":
            return None
        attributes = ir.DictAttr(_attributes(function, "arg_attrs", len(owner.arguments))[number])
        return sdy.TensorShardingAttr(attributes[SHARDING]) if SHARDING in attributes else None
    if SHARDING not in owner.attributes:
        return None
    shardings = sdy.TensorShardingPerValueAttr(owner.attributes[SHARDING]).shardings
    return sdy.TensorShardingAttr(shardings[ir.OpResult(value).result_number])


def _parents(op):
    while op is not None:
        yield op.operation
        op = op.operation.parent


def _mesh_of(call, sharding):
    """The names and sizes of a mesh's axes."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import sdy

    *_, module = _parents(call)
    mesh = ir.SymbolTable(module)[ir.FlatSymbolRefAttr(sharding.mesh_or_ref).value].attributes["mesh"]
    return [(axis.name, axis.size) for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(mesh).axes)]


def _inspect(call):
    """Calls the function of an inspection."""
    import jax
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import sdy

    function, devices = _inspected[int(ir.StringAttr(call.attributes["backend_config"]).value)]
    is_manual = any(op.name == "sdy.manual_computation" for op in _parents(call))
    sharding = None if is_manual else _sharding_of(call.operands[0])
    axes, dims = [("devices", len(devices))], ()
    if sharding is not None:
        axes = _mesh_of(call, sharding)
        dims = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
        dims = [tuple(sdy.AxisRefAttr(axis).name for axis in dim.axes) for dim in dims]
    mesh = jax.sharding.Mesh(np.array(devices).reshape([size for _, size in axes]), [name for name, _ in axes])
    function(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*dims)))


def _devices_of(context):
    """The devices of the program that is lowered; None: they are not known."""
    mesh = getattr(context, "mesh", None)
    return getattr(context, "device_assignment", None) if mesh is None else mesh.devices.flat


class _Reference:
    """Keeps an inspection as long as its program."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        _inspected.pop(self.number, None)


def _inspect_rule(default):
    def rule(context, value, *, callback):
        from jax.extend.mlir import ir
        from jax.extend.mlir.dialects import stablehlo

        devices = _devices_of(context.module_context.axis_context)
        if devices is None or len(devices) == 1:
            return default(context, value, callback=callback)
        number = next(_numbers)
        _inspected[number] = callback, list(devices)
        context.module_context.add_keepalive(_Reference(number))
        stablehlo.CustomCallOp(
            [],
            [value],
            call_target_name=ir.StringAttr.get(INSPECT),
            has_side_effect=ir.BoolAttr.get(True),
            backend_config=ir.StringAttr.get(str(number)),
        )
        return []

    return rule


def register(platform):
    """Lets programs for a platform have such shardings."""
    from jax.interpreters import mlir

    def before(module, options):
        build = options.executable_build_options
        is_several = build.num_partitions > 1 and build.use_shardy_partitioner
        return propagate(module) if is_several else module

    _private.change_programs(platform, before)
    primitive = _private.inspect_primitive()
    default = _private.default_rule(primitive)
    if default is not None:
        mlir.register_lowering(primitive, _inspect_rule(default), platform=platform)
