"""Parts of tensors on the devices of a mesh, and operations that change how a tensor is divided (_partition.py)."""

import dataclasses
import itertools
import math
import re

import numpy as np

SHARDING = "sdy.sharding"
SUM = "stablehlo.add"


class Unsupported(Exception):
    """The program has something that can't be divided."""


def want(condition, what):
    if not condition:
        raise Unsupported(what)


@dataclasses.dataclass(frozen=True)
class Parts:
    """The mesh's axes that divide each dim, major first; those along which devices have terms, and of what."""

    dims: tuple
    terms: frozenset = frozenset()
    kind: str = SUM

    def axes(self):
        return [axis for dim in self.dims for axis in dim]


def whole(rank):
    return Parts(((),) * rank)


@dataclasses.dataclass(frozen=True)
class Local:
    """A device's part of a value."""

    value: object
    parts: Parts
    shape: tuple  # of the whole


class Mesh:
    """The devices as a grid; their numbers are in row-major order."""

    def __init__(self, attribute):
        from jax.extend.mlir.dialects import sdy

        mesh = sdy.MeshAttr(attribute)
        want(not list(mesh.device_ids), "a mesh that lists its devices")
        self.sizes = {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}
        self.grid = np.arange(math.prod(self.sizes.values())).reshape(tuple(self.sizes.values()))

    def count(self, axes):
        return math.prod(self.sizes[axis] for axis in axes)

    def groups(self, axes):
        """Devices that differ in these axes alone, in their order."""
        names = list(self.sizes)
        places = [names.index(axis) for axis in axes]
        others = [place for place in range(len(names)) if place not in places]
        return self.grid.transpose(others + places).reshape(-1, self.count(axes))

    def local_shape(self, shape, parts):
        for size, axes in zip(shape, parts.dims):
            want(size % self.count(axes) == 0, "a dim that its axes do not divide")
        return tuple(size // self.count(axes) for size, axes in zip(shape, parts.dims))


def read_sharding(attribute):
    from jax.extend.mlir.dialects import sdy

    sharding = sdy.TensorShardingAttr(attribute)
    want("maximal" not in str(sharding.mesh_or_ref), "a tensor of one device")

    def names(axes):
        axes = [sdy.AxisRefAttr(axis) for axis in axes]
        want(all(axis.sub_axis_info is None for axis in axes), "a part of an axis")
        return tuple(axis.name for axis in axes)

    dims = (sdy.DimensionShardingAttr(dim) for dim in sharding.dimension_shardings)
    return Parts(tuple(names(dim.axes) for dim in dims), frozenset(names(sharding.unreduced_axes)))


def attributes_of(op):
    """Attributes by name. Python has none for constants of complex numbers (constant_text)."""
    try:
        entries = [entry if isinstance(entry, str) else entry.name for entry in op.attributes]
        return {name: op.attributes[name] for name in entries}
    except TypeError as error:
        raise Unsupported("a complex constant") from error


def is_complex(type_):
    from jax.extend.mlir import ir

    return isinstance(ir.RankedTensorType(type_).element_type, ir.ComplexType)


def constant_text(op):
    """The elements of a constant, as MLIR writes them: `dense<(1.0,0.0)>` if all are the same."""
    found = re.search(r"value = (dense<.*?>) : tensor<", op.get_asm(print_generic_op_form=True), re.DOTALL)
    want(found is not None, "a constant whose elements are not in the program's text")
    return found[1]


def ir_name(symbol):
    from jax.extend.mlir import ir

    return ir.FlatSymbolRefAttr(symbol).value


def shape_of(value):
    from jax.extend.mlir import ir

    want(isinstance(value.type, ir.RankedTensorType), "a value that is no tensor")
    return tuple(ir.RankedTensorType(value.type).shape)


def with_shape(type_, shape):
    from jax.extend.mlir import ir

    return ir.RankedTensorType.get(shape, ir.RankedTensorType(type_).element_type)


class Writer:
    """Writes operations of one device at the present insertion point."""

    def __init__(self, module, mesh):
        from jax.extend.mlir import ir

        self.mesh, self.symbols = mesh, ir.SymbolTable(module.operation)
        self.channels = itertools.count(1)

    # ---- shardings ----

    def wanted(self, op, index):
        """The parts of an operation's result, as Shardy has them."""
        from jax.extend.mlir.dialects import sdy

        rank = len(shape_of(op.results[index]))
        attributes = op.attributes
        if SHARDING in attributes:
            parts = read_sharding(sdy.TensorShardingPerValueAttr(attributes[SHARDING]).shardings[index])
        elif "out_sharding" in attributes:
            parts = read_sharding(attributes["out_sharding"])
        else:
            return whole(rank)
        want(len(parts.dims) == rank, "a sharding of another rank")
        return parts

    def type_of(self, value, parts):
        shape = shape_of(value)
        return with_shape(value.type, self.mesh.local_shape(shape, parts))

    # ---- writing ----

    def emit(self, name, types, operands, attributes=None, regions=0):
        from jax.extend.mlir import ir

        return ir.Operation.create(name, results=types, operands=operands, attributes=attributes or {}, regions=regions)

    def one(self, name, type_, operands, **attributes):
        return self.emit(name, [type_], operands, attributes).results[0]

    def literal(self, text, type_):
        """A constant with elements in MLIR's text."""
        from jax.extend.mlir import ir

        op = ir.Operation.parse(f'"stablehlo.constant"() <{{value = {text} : {type_}}}> : () -> {type_}')
        ir.InsertionPoint.current.insert(op)
        return op.operation.results[0]

    def number(self, value, type_):
        from jax.extend.mlir import ir

        element = ir.RankedTensorType(type_).element_type
        if is_complex(type_):
            return self.literal(f"dense<({value:e},0.0)>", type_)
        is_integer = isinstance(element, ir.IntegerType)
        attribute = ir.IntegerAttr.get(element, int(value)) if is_integer else None
        if attribute is None:
            want(isinstance(element, ir.FloatType), "terms of this dtype")
            attribute = ir.FloatAttr.get(element, value)
        return self.one("stablehlo.constant", type_, [], value=ir.DenseElementsAttr.get_splat(type_, attribute))

    def place(self, axes):
        """The device's place along these axes, i32."""
        from jax.extend.mlir import ir

        unsigned = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(32))
        signed = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        device = self.one("stablehlo.convert", signed, [self.one("stablehlo.partition_id", unsigned, [])])
        total, names = self.number(0, signed), list(self.mesh.sizes)
        for axis in axes:
            size = self.number(self.mesh.sizes[axis], signed)
            stride = self.number(self.mesh.count(names[names.index(axis) + 1 :]), signed)
            place = self.one("stablehlo.divide", signed, [device, stride])
            place = self.one("stablehlo.remainder", signed, [place, size])
            total = self.one("stablehlo.multiply", signed, [total, size])
            total = self.one("stablehlo.add", signed, [total, place])
        return total

    def collective(self, axes):
        from jax.extend.mlir import ir

        groups = ir.DenseElementsAttr.get(np.ascontiguousarray(self.mesh.groups(axes), dtype=np.int64))
        handle = f"#stablehlo.channel_handle<handle = {next(self.channels)}, type = 1>"
        return {"replica_groups": groups, "channel_handle": ir.Attribute.parse(handle),
                "use_global_device_ids": ir.UnitAttr.get()}

    def all_reduce(self, x, axes):
        from jax.extend.mlir import ir

        type_ = ir.RankedTensorType(x.value.type)
        scalar = ir.RankedTensorType.get([], type_.element_type)
        op = self.emit("stablehlo.all_reduce", [type_], [x.value], self.collective(self.ordered(axes)), regions=1)
        block = op.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            self.emit("stablehlo.return", [], [self.one(x.parts.kind, scalar, list(block.arguments))])
        left = x.parts.terms - frozenset(axes)
        kind = x.parts.kind if left else SUM
        return Local(op.results[0], dataclasses.replace(x.parts, terms=left, kind=kind), x.shape)

    def ordered(self, axes):
        return [axis for axis in self.mesh.sizes if axis in axes]

    def gather(self, x, dim, kept):
        from jax.extend.mlir import ir

        axes = x.parts.dims[dim][kept:]
        dims = (*x.parts.dims[:dim], x.parts.dims[dim][:kept], *x.parts.dims[dim + 1 :])
        parts = dataclasses.replace(x.parts, dims=dims)
        type_ = with_shape(x.value.type, self.mesh.local_shape(x.shape, parts))
        if 0 in x.shape:  # StableHLO gathers no empty dims
            return Local(self.number(0, type_), parts, x.shape)
        place = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
        value = self.one("stablehlo.all_gather", type_, [x.value], all_gather_dim=place, **self.collective(axes))
        return Local(value, parts, x.shape)

    def cut(self, x, dim, axes):
        """The device's part of a dim along these axes."""
        from jax.extend.mlir import ir

        dims = (*x.parts.dims[:dim], x.parts.dims[dim] + tuple(axes), *x.parts.dims[dim + 1 :])
        parts = dataclasses.replace(x.parts, dims=dims)
        shape = self.mesh.local_shape(x.shape, parts)
        signed = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        zero = self.number(0, signed)
        start = self.one("stablehlo.multiply", signed, [self.place(axes), self.number(shape[dim], signed)])
        starts = [start if d == dim else zero for d in range(len(shape))]
        value = self.one("stablehlo.dynamic_slice", with_shape(x.value.type, shape), [x.value, *starts],
                         slice_sizes=ir.DenseI64ArrayAttr.get(shape))
        return Local(value, parts, x.shape)

    def first_alone(self, x, axes):
        """Terms along these axes: the first device has all, the others have zeros: -0, which changes no other term."""
        from jax.extend.mlir import ir

        axes = self.ordered(axes)
        bool_ = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
        place = self.place(axes)
        direction = ir.Attribute.parse("#stablehlo<comparison_direction EQ>")
        is_first = self.one("stablehlo.compare", bool_, [place, self.number(0, place.type)],
                            comparison_direction=direction)
        zeros = self.number(-0.0, x.value.type)
        value = self.one("stablehlo.select", x.value.type, [is_first, x.value, zeros])
        return Local(value, dataclasses.replace(x.parts, terms=x.parts.terms | frozenset(axes)), x.shape)

    def reshard(self, x, target):
        if x.parts == target:
            return x
        if x.parts.terms - target.terms:
            x = self.all_reduce(x, x.parts.terms - target.terms)
        want({x.parts.kind, target.kind} == {SUM}, "terms of another operation than a sum")
        want(not target.terms & set(target.axes()), "terms along axes that divide")
        for dim, axes in enumerate(target.dims):
            common = len([1 for pair in itertools.takewhile(lambda p: p[0] == p[1], zip(x.parts.dims[dim], axes))])
            if len(x.parts.dims[dim]) > common:
                x = self.gather(x, dim, common)
        for dim, axes in enumerate(target.dims):
            if len(axes) > len(x.parts.dims[dim]):
                x = self.cut(x, dim, axes[len(x.parts.dims[dim]) :])
        if target.terms - x.parts.terms:
            x = self.first_alone(x, target.terms - x.parts.terms)
        return x
