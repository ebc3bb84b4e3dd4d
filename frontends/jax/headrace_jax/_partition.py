"""Programs over several devices as the program of one device: each computes its parts of tensors.

The input has Shardy's shardings at every operation, and its collectives where shardings change (_shardings.py). Each
value becomes the device's part. Operations are those of parts if what they mix is not divided; otherwise their
operands are gathered before. Collectives and the device's place are StableHLO's. A partial sum is a value whose terms
the devices have, until somebody needs the whole.

Before:  %1 = reduce(%0) add over [0] : tensor<8x4> divided by "x"     After:  %1 = reduce(%0) : tensor<4x4>
         %2 = sdy.all_reduce {"x"} %1                                          %2 = all_reduce(%1), groups of "x"

Each device factorises the matrices of its part of a batch. Refused (Unsupported): custom calls that are neither
callbacks nor have a batch, composites that are not of _rules.py, random numbers of a device's state, and dims that
Shardy divides unevenly.
"""

import dataclasses
import itertools
import logging
import math
import re

from headrace_jax import _callbacks, _private
from headrace_jax._parts import (
    SHARDING,
    SUM,
    Local,
    Mesh,
    Parts,
    Unsupported,
    Writer,
    attributes_of,
    constant_text,
    ir_name,
    is_complex,
    read_sharding,
    shape_of,
    want,
    whole,
    with_shape,
)

_logger = logging.getLogger(__name__)
ELEMENTWISE = """abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide exponential
exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not
optimization_barrier or popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select
shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor"""
ELEMENTWISE = {f"stablehlo.{name}" for name in ELEMENTWISE.split()}
OF_CHLO = "acos acosh asin asinh atanh cosh erf erf_inv erfc is_inf sinh square"
ELEMENTWISE |= {f"chlo.{name}" for name in OF_CHLO.split()}
LINEAR = {f"stablehlo.{name}" for name in ("add", "subtract", "negate", "real", "imag", "convert")}
WHOLE = """batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert convolution reduce_window
rng_bit_generator select_and_scatter"""
WHOLE = {f"stablehlo.{name}" for name in WHOLE.split()}


def _integer_bits(value):
    """The width of a value's integers; 0: it has others."""
    from jax.extend.mlir import ir

    element = value.type.element_type
    return ir.IntegerType(element).width if isinstance(element, ir.IntegerType) else 0


def composite_axis(op):
    """The dim that a composite of _rules.py computes along; the last one for the rows of an LU factorisation."""
    from jax.extend.mlir import ir

    settings = ir.DictAttr(op.attributes["composite_attributes"])
    return ir.IntegerAttr(settings["axis"]).value if "axis" in settings else len(shape_of(op.operands[0])) - 1


def set_rules(module):
    """Lets Shardy follow dims through composites of _rules.py: all but the one they compute along."""
    from jax.extend.mlir import ir

    def visit(op):
        is_own = op.name == "stablehlo.composite" and ir.StringAttr(op.attributes["name"]).value.startswith("headrace.")
        if is_own and len(op.operands) == 1:
            source, target, axis = shape_of(op.operands[0]), shape_of(op.results[0]), composite_axis(op)
            *dims, last = (chr(ord("i") + d) for d in range(len(source) + 1))  # Shardy's names begin with i
            sizes = dict(zip([*dims, last], [*source, target[axis]]))
            made = [last if d == axis else name for d, name in enumerate(dims)]
            pairs = [f"([{', '.join(names)}])" for names in (dims, made)]
            factors = ", ".join(f"{name}={size}" for name, size in sizes.items())
            rule = f"#sdy.op_sharding_rule<{'->'.join(pairs)} {{{factors}}}, custom>"
            op.attributes["sdy.sharding_rule"] = ir.Attribute.parse(rule)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


class DimensionNumbers:
    """The pairs of dims of a gather's or a scatter's operands."""

    def __init__(self, attribute):
        self.text = str(attribute)
        vector = re.search(r"index_vector_dim = (\d+)", self.text)
        self.vector = int(vector[1]) if vector else 0

    def list(self, name):
        found = re.search(rf"{name} = \[([\d, ]*)\]", self.text)
        return [int(d) for d in found[1].split(",")] if found and found[1] else []

    def places(self, dims):
        """The entries of the indices' dims, without that of their vectors."""
        return [x for d, x in enumerate(dims) if d != self.vector]

    def with_vector(self, places, rank):
        """The opposite, for indices of a rank."""
        left = iter(places)
        return tuple(() if d == self.vector else next(left) for d in range(rank))

    def joined(self, name, windows, places, rank):
        """The entries of a result's or of updates' dims: of windows for those that `name` lists, else of indices."""
        listed, first, second = self.list(name), iter(windows), iter(places)
        return tuple(next(first) if d in listed else next(second) for d in range(rank))


class Partitioner(Writer):
    """The operations of a program, as those of one device."""

    def region(self, block, values):
        """All operations of a block; what it returns."""
        for op in block.operations:
            op = op.operation
            if op.name in ("func.return", "stablehlo.return", "sdy.return"):
                return [values[value] for value in op.operands]
            with op.location:
                results = self.operation(op, values)
            for value, result in zip(op.results, results):
                values[value] = result
        raise Unsupported("a block without an end")

    def operation(self, op, values):
        short = op.name.replace(".", "_")
        rule = getattr(self, f"rule_{short}", None)
        if rule is not None:
            return rule(op, values)
        if op.name in ELEMENTWISE:
            return self.elementwise(op, values)
        want(op.name in WHOLE, op.name)
        types = [x.type for x in (*op.operands, *op.results)] if op.name == "stablehlo.bitcast_convert" else ()
        want(not any(re.search(r"i[24]>", str(type_)) for type_ in types), "integers of 2 and 4 bits as others")
        return self.clone(op, [self.reshard(values[x], whole(len(shape_of(x)))) for x in op.operands], values,
                          [whole(len(shape_of(x))) for x in op.results])

    def clone(self, op, operands, values, parts, **changed):
        """The operation on parts; its regions compute with scalars."""
        attributes = attributes_of(op)
        attributes.pop(SHARDING, None)
        attributes.pop("sdy.sharding_rule", None)
        types = [self.type_of(result, p) for result, p in zip(op.results, parts)]
        made = self.emit(op.name, types, [x.value for x in operands], attributes | changed, regions=len(op.regions))
        for source, target in zip(op.regions, made.regions):
            self.copy_region(source, target, values)
        return [Local(value, p, shape_of(old)) for value, p, old in zip(made.results, parts, op.results)]

    def copy_region(self, source, target, values):
        from jax.extend.mlir import ir

        for block in source.blocks:
            made = target.blocks.append(*[argument.type for argument in block.arguments])
            inner = dict(values)
            for old, new in zip(block.arguments, made.arguments):
                inner[old] = Local(new, None, None)
            with ir.InsertionPoint(made):
                for op in block.operations:
                    self.copy(op.operation, inner)

    def copy(self, op, values):
        """An operation as it is, of whole values. Calls are inlined; asynchronous operations run where they start."""
        if op.name == "func.call":
            self.copy_call(op, self.symbols[ir_name(op.attributes["callee"])].regions[0].blocks[0], values)
        elif op.name == "stablehlo.async_start":
            self.copy_call(op, op.regions[0].blocks[0], values)
        elif op.name == "stablehlo.async_done":
            values[op.results[0]] = values[op.operands[0]]
        else:
            self.copy_one(op, values)

    def copy_block(self, block, values):
        """All operations but the one that returns."""
        for op in list(block.operations)[:-1]:
            self.copy(op.operation, values)

    def copy_call(self, op, block, values):
        inner = dict(values) | dict(zip(block.arguments, (values[x] for x in op.operands)))
        self.copy_block(block, inner)
        for old, new in zip(op.results, list(block.operations)[-1].operation.operands):
            values[old] = inner[new]

    def copy_one(self, op, values):
        want(op.name.startswith(("stablehlo.", "chlo.", "sdy.constant")), op.name)
        want(op.name != "stablehlo.composite", "a composite")
        operands = [values[x] for x in op.operands]
        want(all(x.parts is None or not (x.parts.axes() or x.parts.terms) for x in operands), "a part in a region")
        name = "stablehlo.constant" if op.name == "sdy.constant" else op.name
        if name == "stablehlo.constant" and is_complex(op.results[0].type):
            values[op.results[0]] = Local(self.literal(constant_text(op), op.results[0].type), None, None)
            return
        attributes = attributes_of(op)
        attributes.pop(SHARDING, None)
        made = self.emit(name, [x.type for x in op.results], [x.value for x in operands], attributes, len(op.regions))
        for source, target in zip(op.regions, made.regions):
            self.copy_region(source, target, values)
        for old, new in zip(op.results, made.results):
            values[old] = Local(new, None, None)

    def elementwise(self, op, values):
        operands = [values[x] for x in op.operands]
        parts = [self.wanted(op, i) for i in range(len(op.results))]
        if op.name == "stablehlo.optimization_barrier":
            return self.clone(op, [self.reshard(x, p) for x, p in zip(operands, parts)], values, parts)
        terms = self.terms_of_operands(op, operands, parts[0].terms)
        made = dataclasses.replace(parts[0], terms=parts[0].terms if any(terms) else frozenset())
        targets = [Parts(made.dims if x.shape else (), own) for x, own in zip(operands, terms)]
        results = self.clone(op, [self.reshard(x, p) for x, p in zip(operands, targets)], values, [made])
        return [self.reshard(results[0], parts[0])]

    def terms_of_operands(self, op, operands, terms):
        """The terms that each operand must have so that the result has these; none if the operation is not linear."""
        none = frozenset()
        if op.name in LINEAR and (op.name != "stablehlo.convert" or self.is_linear_convert(op)):
            return [terms] * len(operands)
        if op.name == "stablehlo.select":
            return [none, terms, terms]
        if op.name == "stablehlo.multiply" or (op.name == "stablehlo.divide" and not _integer_bits(op.results[0])):
            has_terms = [bool(x.parts.terms) for x in operands]
            second = op.name == "stablehlo.multiply" and has_terms == [False, True]
            return [none, terms] if second else [terms, none]
        return [none] * len(operands)

    def is_linear_convert(self, op):
        """True if a sum can be converted term by term. A sum of integers may wrap at their width."""
        before, after = _integer_bits(op.operands[0]), _integer_bits(op.results[0])
        return before >= after > 1 if before else not after

    def rule_sdy_constant(self, op, values):
        from jax.extend.mlir import ir

        parts = self.wanted(op, 0)
        type_ = self.type_of(op.results[0], parts)
        shape = shape_of(op.results[0])
        if is_complex(type_):
            return [self.complex_constant(op, type_, parts, shape)]
        attribute = attributes_of(op)["value"]
        if not parts.axes() and not parts.terms:
            return [Local(self.one("stablehlo.constant", type_, [], value=attribute), parts, shape)]
        dense = ir.DenseElementsAttr(attribute)
        if dense.is_splat and not parts.terms:
            splat = ir.DenseElementsAttr.get_splat(type_, dense.get_splat_value())
            return [Local(self.one("stablehlo.constant", type_, [], value=splat), parts, shape)]
        made = self.one("stablehlo.constant", op.results[0].type, [], value=attribute)
        return [self.reshard(Local(made, whole(len(shape)), shape), parts)]

    rule_stablehlo_constant = rule_sdy_constant

    def complex_constant(self, op, type_, parts, shape):
        text = constant_text(op)
        if text.startswith("dense<(") and not parts.terms:
            return Local(self.literal(text, type_), parts, shape)
        return self.reshard(Local(self.literal(text, op.results[0].type), whole(len(shape)), shape), parts)

    def rule_chlo_conj(self, op, values):
        from jax.extend.mlir import ir

        x, type_ = self.reshard(values[op.operands[0]], self.wanted(op, 0)), ir.RankedTensorType(op.operands[0].type)
        if not is_complex(type_):
            return [x]
        part = with_shape(ir.RankedTensorType.get([], ir.ComplexType(type_.element_type).element_type),
                          ir.RankedTensorType(x.value.type).shape)
        real, imag = (self.one(f"stablehlo.{name}", part, [x.value]) for name in ("real", "imag"))
        imag = self.one("stablehlo.negate", part, [imag])
        return [Local(self.one("stablehlo.complex", x.value.type, [real, imag]), x.parts, x.shape)]

    def rule_stablehlo_iota(self, op, values):
        from jax.extend.mlir import ir

        parts = self.wanted(op, 0)
        want(not parts.terms, "terms of an iota")
        dim, shape = ir.IntegerAttr(op.attributes["iota_dimension"]).value, shape_of(op.results[0])
        if not parts.dims[dim]:
            return self.clone(op, [], values, [parts])
        made = self.type_of(op.results[0], parts)
        numbers = ir.RankedTensorType.get(made.shape, ir.IntegerType.get_signless(32))  # before they are rounded
        place = self.place(parts.dims[dim])
        start = self.one("stablehlo.multiply", place.type, [place, self.number(made.shape[dim], place.type)])
        start = self.one("stablehlo.broadcast_in_dim", numbers, [start],
                         broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))
        iota = self.one("stablehlo.iota", numbers, [], iota_dimension=op.attributes["iota_dimension"])
        iota = self.one("stablehlo.add", numbers, [iota, start])
        return [Local(self.one("stablehlo.convert", made, [iota]), parts, shape)]

    def rule_stablehlo_broadcast_in_dim(self, op, values):
        from jax.extend.mlir import ir

        x, parts, shape = values[op.operands[0]], self.wanted(op, 0), shape_of(op.results[0])
        dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        is_same = [x.shape[i] == shape[d] for i, d in enumerate(dims)]
        target = Parts(tuple(parts.dims[d] if same else () for d, same in zip(dims, is_same)), parts.terms)
        return self.clone(op, [self.reshard(x, target)], values, [parts])

    def rule_stablehlo_transpose(self, op, values):
        from jax.extend.mlir import ir

        x = values[op.operands[0]]
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        parts = dataclasses.replace(x.parts, dims=tuple(x.parts.dims[d] for d in order))
        return self.clone(op, [x], values, [parts])

    def rule_stablehlo_reshape(self, op, values):
        x, shape = values[op.operands[0]], shape_of(op.results[0])
        source, target = self.divided_reshape(x, shape)
        x = self.reshard(x, source)
        return self.clone(op, [x], values, [target])

    def divided_reshape(self, x, shape):
        """The parts of a reshape's operand, with which it is one of parts, and its result's. Dims of both that have the
        same elements are a group, whose first dim may be divided."""
        kept, made = [()] * len(x.shape), [()] * len(shape)
        i = j = 0
        while 0 not in x.shape:
            while i < len(x.shape) and x.shape[i] == 1:
                i += 1
            while j < len(shape) and shape[j] == 1:
                j += 1
            if i == len(x.shape) or j == len(shape):
                break
            first, second, left, right = i, j, x.shape[i], shape[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * x.shape[i], i + 1
                else:
                    right, j = right * shape[j], j + 1
            if shape[second] % self.mesh.count(x.parts.dims[first]) == 0:
                kept[first] = made[second] = x.parts.dims[first]
        replace = dataclasses.replace
        return replace(x.parts, dims=tuple(kept)), replace(x.parts, dims=tuple(made))

    def keep_dims(self, x, keeps):
        """The value with its other dims whole."""
        dims = tuple(axes if keep else () for axes, keep in zip(x.parts.dims, keeps))
        return self.reshard(x, dataclasses.replace(x.parts, dims=dims))

    def unmixed(self, op, values, keeps):
        """An operation of one tensor that mixes its other dims."""
        x, *others = (values[x] for x in op.operands)
        x = self.keep_dims(self.reshard(x, Parts(x.parts.dims)), keeps)
        return self.clone(op, [x, *(self.reshard(y, whole(len(y.shape))) for y in others)], values, [x.parts])

    def rule_stablehlo_pad(self, op, values):
        from jax.extend.mlir import ir

        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        numbers = zip(*(ir.DenseI64ArrayAttr(op.attributes[name]) for name in names))
        return self.unmixed(op, values, [not any(padding) for padding in numbers])

    def rule_stablehlo_reverse(self, op, values):
        from jax.extend.mlir import ir

        reversed_ = set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        return self.unmixed(op, values, [d not in reversed_ for d in range(len(shape_of(op.results[0])))])

    def rule_stablehlo_fft(self, op, values):
        from jax.extend.mlir import ir

        rank, transformed = len(shape_of(op.results[0])), len(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
        return self.unmixed(op, values, [d < rank - transformed for d in range(rank)])

    def rule_stablehlo_slice(self, op, values):
        from jax.extend.mlir import ir

        x, shape = values[op.operands[0]], shape_of(op.results[0])
        strides = list(ir.DenseI64ArrayAttr(op.attributes["strides"]))
        limits = list(ir.DenseI64ArrayAttr(op.attributes["limit_indices"]))
        keeps = [old == new and stride == 1 for old, new, stride in zip(x.shape, shape, strides)]
        x = self.keep_dims(x, keeps)
        sizes = self.mesh.local_shape(x.shape, x.parts)
        limits = [size if keep else limit for size, keep, limit in zip(sizes, keeps, limits)]
        return self.clone(op, [x], values, [x.parts], limit_indices=ir.DenseI64ArrayAttr.get(limits))

    def rule_stablehlo_dynamic_slice(self, op, values):
        from jax.extend.mlir import ir

        x, shape = values[op.operands[0]], shape_of(op.results[0])
        x = self.keep_dims(x, [old == new for old, new in zip(x.shape, shape)])
        starts = [self.reshard(values[start], whole(0)) for start in list(op.operands)[1:]]
        sizes = self.mesh.local_shape(shape, x.parts)
        return self.clone(op, [x, *starts], values, [x.parts], slice_sizes=ir.DenseI64ArrayAttr.get(sizes))

    def rule_stablehlo_dynamic_update_slice(self, op, values):
        x, update = (values[operand] for operand in list(op.operands)[:2])
        x = self.keep_dims(x, [old == new for old, new in zip(x.shape, update.shape)])
        starts = [self.reshard(values[start], whole(0)) for start in list(op.operands)[2:]]
        return self.clone(op, [x, self.reshard(update, x.parts), *starts], values, [x.parts])

    def rule_stablehlo_concatenate(self, op, values):
        from jax.extend.mlir import ir

        parts, dim = self.wanted(op, 0), ir.IntegerAttr(op.attributes["dimension"]).value
        dims = tuple(() if d == dim else axes for d, axes in enumerate(parts.dims))
        parts = dataclasses.replace(parts, dims=dims)
        return self.clone(op, [self.reshard(values[x], parts) for x in op.operands], values, [parts])

    def rule_stablehlo_sort(self, op, values):
        from jax.extend.mlir import ir

        dim, first = ir.IntegerAttr(op.attributes["dimension"]).value, values[op.operands[0]]
        dims = tuple(() if d == dim else axes for d, axes in enumerate(first.parts.dims))
        operands = [self.reshard(values[x], Parts(dims)) for x in op.operands]
        return self.clone(op, operands, values, [Parts(dims)] * len(operands))

    def kind_of(self, op):
        """The operation of both arguments that a reduction's region is; None: it is another function."""
        block = op.regions[0].blocks[0]
        inner = [inner.operation for inner in block.operations]
        is_one = len(inner) == 2 and list(inner[0].operands) == list(block.arguments)
        return inner[0].name if is_one and list(inner[1].operands) == list(inner[0].results) else None

    def is_identity(self, kind, value):
        """True if a number changes no result of a reduction."""
        from jax.extend.mlir import ir

        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name not in ("sdy.constant", "stablehlo.constant"):
            return False
        element = ir.RankedTensorType(value.type).element_type
        if is_complex(value.type):
            return kind == SUM and re.fullmatch(r"dense<\(0\.0+e\+00,0\.0+e\+00\)>", constant_text(owner)) is not None
        try:
            number = ir.DenseElementsAttr(owner.attributes["value"]).get_splat_value().value
        except (AttributeError, TypeError, ValueError):
            return False
        numbers = {SUM: 0, "stablehlo.multiply": 1, "stablehlo.or": 0}
        if isinstance(element, ir.FloatType):
            numbers |= {"stablehlo.maximum": -math.inf, "stablehlo.minimum": math.inf}
        elif element.width == 1:
            numbers["stablehlo.and"] = True
        else:
            low = 0 if element.is_unsigned else -(2 ** (element.width - 1))
            numbers |= {"stablehlo.maximum": low, "stablehlo.minimum": low + 2**element.width - 1}
        return kind in numbers and number == numbers[kind]

    def rule_stablehlo_reduce(self, op, values):
        from jax.extend.mlir import ir

        count = len(op.results)
        operands = [values[x] for x in op.operands]
        dims = set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        kind = self.kind_of(op) if count == 1 else None
        may_divide = count == 1 and self.is_identity(kind, op.operands[1])
        if not may_divide or (operands[0].parts.terms and (kind != SUM or operands[0].parts.kind != SUM)):
            target = Parts(tuple(() if d in dims else axes for d, axes in enumerate(operands[0].parts.dims)))
            operands = [self.reshard(x, target) for x in operands[:count]] + operands[count:]
        parts = operands[0].parts
        terms = parts.terms | {axis for d in dims for axis in parts.dims[d]}
        left = tuple(axes for d, axes in enumerate(parts.dims) if d not in dims)
        made = Parts(left, frozenset(terms), kind if terms else SUM)
        inits = [self.reshard(x, whole(0)) for x in operands[count:]]
        return self.clone(op, operands[:count] + inits, values, [made] * count)

    def rule_stablehlo_gather(self, op, values):
        """Stay divided: batch dims, windows that are as long as the operand's dim, and indices."""
        from jax.extend.mlir import ir

        x, indices = (values[x] for x in op.operands)
        numbers = DimensionNumbers(op.attributes["dimension_numbers"])
        sizes, result = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"])), shape_of(op.results[0])
        left = numbers.list("collapsed_slice_dims") + numbers.list("operand_batching_dims")
        windows = [d for d in range(len(x.shape)) if d not in left]
        dims = [x.parts.dims[d] if d in windows and sizes[d] == x.shape[d] else () for d in range(len(x.shape))]
        taken = {axis for axes in dims for axis in axes}
        places = [() if taken & set(axes) else axes for axes in numbers.places(indices.parts.dims)]
        for own, other in zip(numbers.list("operand_batching_dims"), numbers.list("start_indices_batching_dims")):
            place = other - (other > numbers.vector)
            if not places[place] and not taken.union(*places) & set(x.parts.dims[own]):
                places[place] = x.parts.dims[own]
            dims[own] = places[place]
        x = self.reshard(x, Parts(tuple(dims)))
        indices = self.reshard(indices, Parts(numbers.with_vector(places, len(indices.shape))))
        sizes = [local if d in windows and size == whole_ else size for d, (size, whole_, local) in
                 enumerate(zip(sizes, x.shape, self.mesh.local_shape(x.shape, x.parts)))]
        made = numbers.joined("offset_dims", [dims[d] for d in windows], places, len(result))
        return self.clone(op, [x, indices], values, [Parts(made)], slice_sizes=ir.DenseI64ArrayAttr.get(sizes))

    def rule_stablehlo_scatter(self, op, values):
        """Stay divided: batch dims, and windows that are as long as the operand's dim. A sum of divided updates has
        terms. Its operand is that of the first device alone."""
        numbers = DimensionNumbers(op.attributes["scatter_dimension_numbers"])
        operands, count = [values[x] for x in op.operands], len(op.results)
        x, indices, update = operands[0], operands[count], operands[count + 1]
        places = numbers.places(indices.parts.dims)
        is_sum = count == 1 and self.kind_of(op) == SUM and not numbers.list("input_batching_dims")
        terms = frozenset(axis for axes in places for axis in axes)
        if not is_sum or not terms or any(x.parts.terms for x in operands):
            places, terms = [()] * len(places), frozenset()
        left = numbers.list("inserted_window_dims") + numbers.list("input_batching_dims")
        windows = [d for d in range(len(x.shape)) if d not in left]
        spans = dict(zip(windows, numbers.list("update_window_dims")))
        dims = [()] * len(x.shape)
        for d in windows if not terms else ():
            dims[d] = x.parts.dims[d] if update.shape[spans[d]] == x.shape[d] else ()
        for own, other in zip(numbers.list("input_batching_dims"), numbers.list("scatter_indices_batching_dims")):
            dims[own] = places[other - (other > numbers.vector)] = x.parts.dims[own]
        updates = numbers.joined("update_window_dims", [dims[d] for d in windows], places, len(update.shape))
        parts = Parts(tuple(dims), terms)
        targets = [parts] * count + [Parts(numbers.with_vector(places, len(indices.shape)))] + [Parts(updates)] * count
        return self.clone(op, [self.reshard(x, p) for x, p in zip(operands, targets)], values, [parts] * count)

    # ---- calls ----

    def batched(self, op, values, count):
        """An operation on each item of a batch, the first `count` dims of all operands and results. The first operand
        whose batch is divided decides the parts of all."""
        operands = [values[x] for x in op.operands]
        want(all(len(shape_of(x)) >= count for x in (*op.operands, *op.results)), "a value without its batch's dims")
        divided = [x.parts.dims[:count] for x in operands]
        batch = next(filter(any, divided), ((),) * count)

        def parts(shape):
            return Parts(batch + ((),) * (len(shape) - count))

        operands = [self.reshard(x, parts(x.shape)) for x in operands]
        return self.clone(op, operands, values, [parts(shape_of(x)) for x in op.results])

    def rule_stablehlo_cholesky(self, op, values):
        return self.batched(op, values, len(shape_of(op.results[0])) - 2)

    rule_stablehlo_triangular_solve = rule_stablehlo_cholesky

    def rule_stablehlo_composite(self, op, values):
        """Composites of _rules.py become custom calls, since their decompositions have the dims of whole tensors."""
        from jax.extend.mlir import ir

        name, operands = ir.StringAttr(op.attributes["name"]).value, [values[x] for x in op.operands]
        element = ir.RankedTensorType(op.operands[0].type).element_type
        want(name.startswith("headrace."), "a composite")
        is_known = re.fullmatch(r"u?i\d+|f(16|32|64)|bf16", str(element))
        is_known = is_known or (name.endswith(("_sum", "_prod")) and is_complex(op.operands[0].type))
        want(is_known and len(operands) == 1, "a composite that is its decomposition")
        dims = [() if d == composite_axis(op) else axes for d, axes in enumerate(operands[0].parts.dims)]
        x = self.reshard(operands[0], Parts(tuple(dims)))
        type_ = self.type_of(op.results[0], x.parts)
        call = self.one("stablehlo.custom_call", type_, [x.value], call_target_name=ir.StringAttr.get(name),
                        **{"mhlo.backend_config": op.attributes["composite_attributes"]})
        return [Local(call, x.parts, shape_of(op.results[0]))]

    def rule_stablehlo_custom_call(self, op, values):
        """Callbacks of Python have whole operands, unless they are to run on each device with its parts. Other calls
        name the number of their dims that are a batch."""
        from jax.extend.mlir import ir

        name, operands = ir.StringAttr(op.attributes["call_target_name"]).value, [values[x] for x in op.operands]
        batch = re.search(r'num_batch_dims = "(\d+)"', str(attributes_of(op).get("mhlo.frontend_attributes")))
        if batch is not None:
            return self.batched(op, values, int(batch[1]))
        want(_callbacks.is_name(name), "a custom call")
        if not _callbacks.is_partitioned(name):
            operands = [self.reshard(x, whole(len(x.shape))) for x in operands]
            return self.clone(op, operands, values, [whole(len(shape_of(x))) for x in op.results])
        want(not any(x.parts.terms for x in operands) and not op.results, "results of callbacks with parts")
        name = _callbacks.create_for_parts(name, [tuple(x.value.type.shape) for x in operands])
        return self.clone(op, operands, values, [], call_target_name=ir.StringAttr.get(name))

    def rule_stablehlo_dot_general(self, op, values):
        lhs, rhs = (values[x] for x in op.operands)
        numbers = [re.search(rf"{name} = \[([\d, ]*)\]", str(op.attributes["dot_dimension_numbers"])) for name in (
            "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
            "rhs_contracting_dimensions")]
        batch, batch2, inner, inner2 = ([int(d) for d in found[1].split(",")] if found and found[1] else []
                                        for found in numbers)
        dims = list(rhs.parts.dims)
        for left, right in zip(batch + inner, batch2 + inner2):
            dims[right] = lhs.parts.dims[left]
        taken = {axis for d, axes in enumerate(lhs.parts.dims) for axis in axes} | lhs.parts.terms
        for d in range(len(dims)):
            if d not in batch2 + inner2 and taken & set(dims[d]):
                dims[d] = ()
        want(not (lhs.parts.terms and rhs.parts.terms), "terms of both factors")
        want(lhs.parts.kind == rhs.parts.kind == SUM, "a factor that is no sum")
        rhs = self.reshard(rhs, dataclasses.replace(rhs.parts, dims=tuple(dims)))
        terms = lhs.parts.terms | rhs.parts.terms | {axis for d in inner for axis in lhs.parts.dims[d]}
        made = [lhs.parts.dims[d] for d in batch]
        made += [axes for d, axes in enumerate(lhs.parts.dims) if d not in batch + inner]
        made += [axes for d, axes in enumerate(rhs.parts.dims) if d not in batch2 + inner2]
        want(len({*terms, *itertools.chain(*made)}) == len(terms) + len(list(itertools.chain(*made))), "an axis twice")
        return self.clone(op, [lhs, rhs], values, [Parts(tuple(made), frozenset(terms))])

    # ---- control ----

    def rule_func_call(self, op, values):
        function = self.symbols[ir_name(op.attributes["callee"])]
        block = function.regions[0].blocks[0]
        inner = dict(zip(block.arguments, (values[x] for x in op.operands)))
        return self.region(block, inner)

    def rule_stablehlo_while(self, op, values):
        from jax.extend.mlir import ir

        parts = [self.wanted(op, i) for i in range(len(op.results))]
        operands = [self.reshard(values[x], p) for x, p in zip(op.operands, parts)]
        types = [x.value.type for x in operands]
        made = self.emit(op.name, types, [x.value for x in operands], regions=2)
        for number, (source, target) in enumerate(zip(op.regions, made.regions)):
            block = target.blocks.append(*types)
            inner = dict(values)
            for old, new, x in zip(source.blocks[0].arguments, block.arguments, operands):
                inner[old] = Local(new, x.parts, x.shape)
            with ir.InsertionPoint(block):
                results = self.region(source.blocks[0], inner)
                targets = [whole(0)] if number == 0 else parts
                self.emit("stablehlo.return", [], [self.reshard(x, p).value for x, p in zip(results, targets)])
        return [Local(value, x.parts, x.shape) for value, x in zip(made.results, operands)]

    def rule_stablehlo_case(self, op, values):
        from jax.extend.mlir import ir

        parts = [self.wanted(op, i) for i in range(len(op.results))]
        index = self.reshard(values[op.operands[0]], whole(0))
        types = [self.type_of(result, p) for result, p in zip(op.results, parts)]
        made = self.emit(op.name, types, [index.value], regions=len(op.regions))
        for source, target in zip(op.regions, made.regions):
            with ir.InsertionPoint(target.blocks.append()):
                results = self.region(source.blocks[0], dict(values))
                self.emit("stablehlo.return", [], [self.reshard(x, p).value for x, p in zip(results, parts)])
        return [Local(value, p, shape_of(old)) for value, p, old in zip(made.results, parts, op.results)]

    # ---- Shardy ----

    def to_wanted(self, op, values):
        return [self.reshard(values[op.operands[0]], self.wanted(op, 0))]

    rule_sdy_all_gather = rule_sdy_all_slice = rule_sdy_all_to_all = rule_sdy_collective_permute = to_wanted
    rule_sdy_reduce_scatter = rule_sdy_reshard = rule_sdy_sharding_constraint = to_wanted
    rule_sdy_replicated_to_unreduced = to_wanted

    def rule_sdy_all_reduce(self, op, values):
        x = values[op.operands[0]]
        axes = set(re.findall(r'"([^"]*)"', str(op.attributes["reduction_axes"]))) & x.parts.terms
        return [self.all_reduce(x, axes) if axes else x]  # what Shardy takes for terms may be whole here

    def rule_sdy_sharded_to_unreduced(self, op, values):
        """Parts become terms: each is the whole with zeros elsewhere."""
        from jax.extend.mlir import ir

        x, target = values[op.operands[0]], self.wanted(op, 0)
        signed = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        for dim, axes in enumerate(target.dims):
            old = x.parts.dims[dim]
            want(old[: len(axes)] == axes, "terms of other parts")
            if old == axes:
                continue
            dims = (*x.parts.dims[:dim], axes, *x.parts.dims[dim + 1 :])
            parts = Parts(dims, x.parts.terms | frozenset(old[len(axes) :]))
            shape, size = self.mesh.local_shape(x.shape, parts), self.mesh.local_shape(x.shape, x.parts)[dim]
            zeros = self.number(-0.0, with_shape(x.value.type, shape))
            start = self.one("stablehlo.multiply", signed,
                             [self.place(old[len(axes) :]), self.number(size, signed)])
            starts = [start if d == dim else self.number(0, signed) for d in range(len(shape))]
            x = Local(self.one("stablehlo.dynamic_update_slice", zeros.type, [zeros, x.value, *starts]), parts, x.shape)
        return [self.reshard(x, target)]

    def rule_sdy_manual_computation(self, op, values):
        """Its block is the program of a device already."""
        from jax.extend.mlir.dialects import sdy

        block = op.regions[0].blocks[0]
        axes = set(re.findall(r'"([^"]*)"', str(op.attributes["manual_axes"])))
        want(axes == set(self.mesh.sizes), "a computation that is manual along some axes")
        given, made = (sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings
                       for name in ("in_shardings", "out_shardings"))
        inner = {}
        for argument, operand, parts in zip(block.arguments, op.operands, map(read_sharding, given)):
            x = self.reshard(values[operand], parts)
            inner[argument] = Local(x.value, None, None)
        self.copy_block(block, inner)
        end = list(block.operations)[-1].operation
        return [Local(inner[value].value, parts, shape_of(result))
                for value, parts, result in zip(end.operands, map(read_sharding, made), op.results)]


# ---- programs ----


def _main(module):
    from jax.extend.mlir import ir

    return ir.SymbolTable(module.operation)["main"]


def _mesh(module):
    meshes = [op for op in module.body.operations if op.operation.name == "sdy.mesh"]
    meshes = [op for op in meshes if "maximal" not in str(op.attributes["sym_name"])]
    want(len(meshes) == 1, "several meshes")
    return meshes[0]


def _parts_of(main, name, types):
    from jax.extend.mlir import ir

    attributes = list(ir.ArrayAttr(main.attributes[name])) if name in main.attributes else [None] * len(types)
    for type_, attribute in zip(types, attributes):
        want(isinstance(type_, ir.RankedTensorType), "a value that is no tensor")
        entries = ir.DictAttr(attribute) if attribute is not None else ()
        rank = ir.RankedTensorType(type_).rank
        yield read_sharding(entries[SHARDING]) if SHARDING in entries else whole(rank)


def _text(parts, mesh):
    """A sharding in Shardy's text."""
    dims = ", ".join("{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in parts.dims)
    terms = ", ".join(f'"{axis}"' for axis in sorted(parts.terms))
    return f"<@{mesh}, [{dims}]" + (f", unreduced={{{terms}}}" if terms else "") + ">"


class Program:
    """The program of one device, which can be written at several places."""

    def __init__(self, module):
        from jax.extend.mlir import ir

        self.module, self.main = module, _main(module)
        self.symbol = ir.StringAttr(_mesh(module).attributes["sym_name"]).value
        self.mesh = Mesh(_mesh(module).attributes["mesh"])
        type_ = ir.FunctionType(ir.TypeAttr(self.main.attributes["function_type"]).value)
        self.inputs, self.outputs = list(type_.inputs), list(type_.results)
        self.given = list(_parts_of(self.main, "arg_attrs", self.inputs))
        self.made = list(_parts_of(self.main, "res_attrs", self.outputs))
        self.is_divided = any(parts.axes() or parts.terms for parts in self.given + self.made)

    def local_types(self, types, parts):
        from jax.extend.mlir import ir

        return [with_shape(type_, self.mesh.local_shape(ir.RankedTensorType(type_).shape, p))
                for type_, p in zip(types, parts)]

    def write(self, arguments):
        """The operations at the present place; the results."""
        from jax.extend.mlir import ir

        block = self.main.regions[0].blocks[0]
        partitioner = Partitioner(self.module, self.mesh)
        values = {old: Local(new, parts, tuple(ir.RankedTensorType(old.type).shape))
                  for old, new, parts in zip(block.arguments, arguments, self.given)}
        results = partitioner.region(block, values)
        return [partitioner.reshard(x, parts).value for x, parts in zip(results, self.made)]

    def local_module(self):
        """A module whose main is the program of a device."""
        from jax.extend.mlir import ir
        from jax.extend.mlir.dialects import func

        module = ir.Module.create()
        for name, attribute in attributes_of(self.module.operation).items():
            module.operation.attributes[name] = attribute
        inputs, outputs = self.local_types(self.inputs, self.given), self.local_types(self.outputs, self.made)
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(inputs, outputs))
            with ir.InsertionPoint(main.add_entry_block()):
                func.ReturnOp(self.write(main.arguments))
        module.operation.verify()
        return module

    def replace_main(self, module):
        """Makes main of a module one computation that is manual along all axes."""
        from jax.extend.mlir import ir

        main = _main(module)
        block = main.regions[0].blocks[0]
        for op in reversed(list(block.operations)):
            op.operation.erase()
        given, made = (", ".join(_text(p, self.symbol) for p in parts) for parts in (self.given, self.made))
        axes = ", ".join(f'"{axis}"' for axis in self.mesh.sizes)
        attributes = {"in_shardings": ir.Attribute.parse(f"#sdy.sharding_per_value<[{given}]>"),
                      "out_shardings": ir.Attribute.parse(f"#sdy.sharding_per_value<[{made}]>"),
                      "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{axes}}}>")}
        with ir.InsertionPoint(block):
            call = ir.Operation.create("sdy.manual_computation", results=self.outputs, operands=list(block.arguments),
                                       attributes=attributes, regions=1)
            ir.Operation.create("func.return", operands=list(call.results))
        inner = call.regions[0].blocks.append(*self.local_types(self.inputs, self.given))
        with ir.InsertionPoint(inner):
            ir.Operation.create("sdy.return", operands=self.write(inner.arguments))
        module.operation.verify()


PASSES = ("sdy-insert-explicit-reshards{enable-full-version=true}", "sdy-reshard-to-collectives")


def divide(followed, made):
    """The program with which each device computes its parts, and that notes the program of one. followed: with Shardy's
    shardings, is changed; made: the program that would run otherwise, and does if it can't be divided."""
    from jax.extend.mlir import ir

    try:
        for name in PASSES:
            _private.run_passes(followed, f"builtin.module(func.func({name}))")
        program = Program(followed)
        text = program.local_module().operation.get_asm()
        divided = ir.Module.parse(_private.module_bytes(made))
        if program.is_divided:
            program.replace_main(divided)
    except (Unsupported, ir.MLIRError) as reason:
        _logger.debug("each device computes all: %s", reason)
        return made
    _main(divided).attributes["headrace.note"] = ir.StringAttr.get(text)
    return divided
