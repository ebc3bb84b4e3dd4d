"""Functions of XLA's typed FFI (jax.ffi): C and C++ functions that programs call with the memory of arrays.

jax.ffi.register_ffi_target gives a function of each stage for this platform or for the CPU; jax.ffi.ffi_call becomes a
callback (_callbacks.py) that passes them a frame: buffers, attributes, and a table of functions for errors, state and
others. The structs are those of xla/ffi/api/c_api.h, version 0.3. The state of the stage instantiate lives as
long as its program, those of other stages as long as a call. Tasks of the thread pool run at once, and futures are
waited for.

Refused: functions of the untyped interface (api_version 0), arrays of arrays as attributes. Of a stream there is none.
"""

import ctypes
import itertools
import threading

import numpy as np
from headrace_jax import _callbacks, _capsules, _private

VERSION = (0, 3)
INSTANTIATE, PREPARE, INITIALIZE, EXECUTE = range(4)
STAGES = ("instantiate", "prepare", "initialize", "execute")
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
BUFFER = 1
INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED = 3, 5, 12
OWN = ("lapack_", "xla_", "dce_sink")  # the core has these
DTYPES = {"bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9}
DTYPES |= {"float16": 10, "float32": 11, "float64": 12, "complex64": 15, "bfloat16": 16, "complex128": 18, "int4": 21}
DTYPES |= {"float8_e5m2": 19, "float8_e4m3fn": 20, "uint4": 22, "float8_e4m3b11fnuz": 23, "float8_e5m2fnuz": 24}
DTYPES |= {"float8_e4m3fnuz": 25, "int2": 26, "uint2": 27, "float8_e4m3": 28, "float8_e3m4": 29}
DTYPES |= {"float4_e2m1fn": 32, "float8_e8m0fnu": 33}

_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _struct(name, *fields):
    """A struct that begins with its size and its extensions."""
    head = (("struct_size", ctypes.c_size_t), ("extensions", ctypes.c_void_p))
    return type(name, (ctypes.Structure,), {"_fields_": (*head, *fields)})


P, I64, I32, SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t
_Buffer = _struct("Buffer", ("dtype", I32), ("data", P), ("rank", I64), ("dims", P))
_Values = _struct("Values", ("size", I64), ("types", P), ("values", P))
_Attributes = _struct("Attributes", ("size", I64), ("types", P), ("names", P), ("values", P))
_Frame = _struct("Frame", ("api", P), ("context", P), ("stage", I32), ("args", _Values), ("rets", _Values),
                 ("attributes", _Attributes), ("future", P))
_Version = _struct("Version", ("major", I32), ("minor", I32))
_Api = _struct("Api", ("version", _Version), ("internal", P), ("functions", P * 18))
_ErrorArgs = _struct("ErrorArgs", ("message", ctypes.c_char_p), ("code", I32))
_OfError = _struct("OfError", ("error", P), ("message", P))
_TypeArgs = _struct("TypeArgs", ("name", ctypes.c_char_p), ("name_size", SIZE), ("type", P), ("info", P))
_TypeInfo = _struct("TypeInfo", ("deleter", P))
_State = _struct("State", ("context", P), ("stage", I32), ("type", P), ("state", P))
_Of = _struct("Of", ("context", P), ("value", P), ("second", P), ("third", P))
_Number = _struct("Number", ("context", P), ("number", I32))
_FutureArgs = _struct("FutureArgs", ("future", P), ("error", P))


class _Span(ctypes.Structure):
    _fields_ = (("text", P), ("size", SIZE))


class _Scalar(ctypes.Structure):
    _fields_ = (("dtype", I32), ("value", P))


class _Array(ctypes.Structure):
    _fields_ = (("dtype", I32), ("size", SIZE), ("data", P))


def _made(kind, **fields):
    return kind(struct_size=ctypes.sizeof(kind), **fields)


# ---- the table of functions ----

_errors, _contexts, _types, _futures = {}, {}, {}, {}  # by address or number
_numbers = itertools.count(1)


def _error(code, message):
    """The address of an error, which its receiver destroys."""
    text = ctypes.create_string_buffer(message.encode())
    _errors[ctypes.addressof(text)] = code, text
    return ctypes.addressof(text)


def _take_error(address):
    """The message of an error, which ends."""
    return _errors.pop(address)[1].value.decode(errors="replace")


def _error_create(args):
    made = _ErrorArgs.from_address(args)
    return _error(made.code, (made.message or b"").decode(errors="replace"))


def _error_message(args):
    of = _OfError.from_address(args)
    of.message = of.error


def _error_destroy(args):
    _errors.pop(_OfError.from_address(args).error, None)


def _unsupported(args):
    return _error(UNIMPLEMENTED, "headrace: this function of XLA's FFI is not supported")


def _stream_get(args):
    return _error(UNIMPLEMENTED, "headrace: XLA FFI GPU context is not available: there is no stream")


def _type_register(args):
    made = _TypeArgs.from_address(args)
    _register_type(made.type, made.info)


def _register_type(type_, info):
    """Gives a type a number if it has none, and keeps the function that deletes its objects."""
    number = I64.from_address(type_)
    number.value = number.value or next(_numbers)
    deleter = _TypeInfo.from_address(info).deleter if info else None
    _types[number.value] = _Deleter(deleter) if deleter else None


def _state_set(args):
    made = _State.from_address(args)
    return _contexts[made.context].set_state(made.stage, I64.from_address(made.type).value, made.state)


def _state_get(args):
    made = _State.from_address(args)
    kind, state = _contexts[made.context].state(made.stage) or (None, None)
    if kind != I64.from_address(made.type).value:
        return _error(NOT_FOUND, "headrace: the call has no state of this type")
    made.state = state


def _allocate(args):
    made = _Of.from_address(args)  # value: size, second: alignment, third: the address
    size, alignment = made.value or 0, max(made.second or 1, 1)
    memory = ctypes.create_string_buffer(size + alignment)
    made.third = -(-ctypes.addressof(memory) // alignment) * alignment
    _contexts[made.context].memory[made.third] = memory


def _free(args):
    made = _Of.from_address(args)  # value: size, second: the address
    _contexts[made.context].memory.pop(made.second, None)


def _schedule(args):
    made = _Of.from_address(args)
    _Task(made.value)(made.second)


def _thread_count(args):
    I64.from_address(_Of.from_address(args).value).value = 1


def _future_create(args):
    future = [threading.Event(), None]
    _futures[id(future)] = future
    _FutureArgs.from_address(args).future = id(future)


def _future_set(args):
    made = _FutureArgs.from_address(args)
    future = _futures[made.future]
    if made.struct_size >= ctypes.sizeof(_FutureArgs):
        future[1] = made.error
    future[0].set()


def _run_id(args):
    I64.from_address(args + _Of.value.offset).value = 0


def _device_ordinal(args):
    _Number.from_address(args).number = 0


FUNCTIONS = (
    _error_create, _error_message, _error_destroy, _unsupported, _stream_get, _type_register, _unsupported, _state_set,
    _state_get, _allocate, _free, _schedule, _thread_count, _future_create, _future_set, _future_set, _run_id,
    _device_ordinal,
)
_functions = [_Handler(function) for function in FUNCTIONS]
_api = _made(_Api, version=_made(_Version, major=VERSION[0], minor=VERSION[1]))
_api.functions[:] = [ctypes.cast(function, P).value for function in _functions]


# ---- attributes ----


def _dtype_of(dtype):
    number = DTYPES.get(np.dtype(dtype).name)
    if number is None:
        raise NotImplementedError(f"headrace_jax: functions of XLA's FFI have no numbers of dtype {np.dtype(dtype)}")
    return number


class _Names:
    """Attributes by name as a struct, and what it points to."""

    def __init__(self, values):
        names = sorted(values)
        made = [self.attribute(values[name]) for name in names]
        self.texts = [ctypes.create_string_buffer(name.encode()) for name in names]
        self.spans = [_Span(ctypes.addressof(text), len(text) - 1) for text in self.texts]
        self.kept = made
        self.types = (I32 * max(len(made), 1))(*(kind for kind, *_ in made))
        self.names = (P * max(len(made), 1))(*map(ctypes.addressof, self.spans))
        self.values = (P * max(len(made), 1))(*(ctypes.addressof(value) for _, value, *_ in made))
        self.struct = _made(_Attributes, size=len(made), types=ctypes.addressof(self.types),
                            names=ctypes.addressof(self.names), values=ctypes.addressof(self.values))

    def attribute(self, value):
        """(kind, struct, what must be kept)"""
        if hasattr(value, "items"):
            inner = _Names(dict(value.items()))
            return DICTIONARY, inner.struct, inner
        if isinstance(value, str):
            text = ctypes.create_string_buffer(value.encode())
            return STRING, _Span(ctypes.addressof(text), len(text) - 1), text
        if isinstance(value, (list, tuple)):
            raise NotImplementedError("headrace_jax: an attribute of XLA's FFI that is a list: pass a NumPy array")
        is_array = isinstance(value, np.ndarray)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        elements = np.array(value, np.int64) if is_integer else np.ascontiguousarray(value)
        dtype, address = _dtype_of(elements.dtype), elements.ctypes.data
        if is_array:
            return ARRAY, _Array(dtype, elements.size, address), elements
        return SCALAR, _Scalar(dtype, address), elements


# ---- calls ----


class _Buffers:
    """Operands or results; JAX's layouts of their memory are its dims, minor first."""

    def __init__(self, avals, layouts):
        self.avals, count = avals, max(len(avals), 1)
        self.orders = [tuple(range(len(aval.shape))) if layout is None else tuple(reversed(layout))
                       for aval, layout in zip(avals, layouts or [None] * len(avals))]  # major first
        self.dims = [(I64 * max(len(aval.shape), 1))(*aval.shape) for aval in avals]
        self.dtypes = [_dtype_of(aval.dtype) for aval in avals]
        self.types = (I32 * count)(*[BUFFER] * len(avals))

    def is_plain(self, i):
        return self.orders[i] == tuple(range(len(self.orders[i])))

    def values(self, addresses):
        """The struct with these addresses, and what it points to."""
        made = [_made(_Buffer, dtype=dtype, data=address, rank=len(aval.shape), dims=ctypes.addressof(dims))
                for aval, dtype, dims, address in zip(self.avals, self.dtypes, self.dims, addresses)]
        places = (P * max(len(made), 1))(*map(ctypes.addressof, made))
        struct = _made(_Values, size=len(made), types=ctypes.addressof(self.types), values=ctypes.addressof(places))
        return struct, (made, places)


class _Context:
    """States and memory of a call in a program, or of one run of the call, which has the states of `outer`, too."""

    def __init__(self, outer=None):
        self.outer, self.states, self.memory = outer, {}, {}
        self.number = next(_numbers)
        _contexts[self.number] = self

    def set_state(self, stage, kind, state):
        if self.state(stage) is not None:
            return _error(INVALID_ARGUMENT, "headrace: the call has a state already")
        self.states[stage] = kind, state
        return None

    def state(self, stage):
        """(kind, address); None: there is none."""
        return self.states.get(stage) or (self.outer and self.outer.state(stage))

    def end(self):
        """Deletes the states."""
        _contexts.pop(self.number, None)
        for kind, state in self.states.values():
            if _types.get(kind):
                _types[kind](state)


class _Site:
    """A call in a program."""

    def __init__(self, name, handlers, attributes, operands, results, aliases):
        self.name, self.handlers, self.attributes = name, handlers, _Names(attributes)
        self.operands, self.results, self.aliases = operands, results, aliases
        self.context = _Context()
        try:
            self.run(self.context, INSTANTIATE, (), ())
        except BaseException:
            self.context.end()
            raise

    def run(self, context, stage, inputs, outputs):
        if self.handlers[stage] is None:
            return
        args, kept = self.operands.values(inputs)
        rets, kept_too = self.results.values(outputs)
        frame = _made(_Frame, api=ctypes.addressof(_api), context=context.number, stage=stage, args=args, rets=rets,
                      attributes=self.attributes.struct)
        frame.struct_size = _Frame.future.offset  # as the ABI has it
        failure = self.handlers[stage](ctypes.addressof(frame))
        if not failure and frame.future:
            event, failure = self.wait(frame.future)
        del kept, kept_too
        if failure:
            raise RuntimeError(f"{self.name}: {_take_error(failure)}")

    def wait(self, number):
        future = _futures[number]
        future[0].wait()
        return _futures.pop(number)

    def call(self, inputs, outputs):
        """Runs the stages; memory of other orders is copied."""
        given = [self.copy_in(i, inputs[i]) for i in range(len(self.operands.avals))]
        made = [self.room_for(i, outputs[i]) for i in range(len(self.results.avals))]
        for operand, result in self.aliases.items():
            size = _callbacks.view_bytes(self.operands.avals[operand])
            ctypes.memmove(made[result][0], given[operand][0], size)
            given[operand] = made[result]
        addresses = [address for address, _ in given], [address for address, _ in made]
        context = _Context(self.context)
        try:
            for stage in (PREPARE, INITIALIZE, EXECUTE):
                self.run(context, stage, *addresses)
        finally:
            context.end()
        for i, (_, elements) in enumerate(made):
            if elements is not None:
                order = np.argsort(self.results.orders[i])
                _callbacks.view(outputs[i], self.results.avals[i])[...] = elements.transpose(order)

    def copy_in(self, i, address):
        if self.operands.is_plain(i):
            return address, None
        elements = np.ascontiguousarray(_callbacks.view(address, self.operands.avals[i]).transpose(
            self.operands.orders[i]))
        return elements.ctypes.data, elements

    def room_for(self, i, address):
        if self.results.is_plain(i):
            return address, None
        aval = self.results.avals[i]
        elements = np.empty([aval.shape[d] for d in self.results.orders[i]], aval.dtype)
        return elements.ctypes.data, elements


# ---- targets ----

_targets = {}  # by name: the functions of its stages; None: one of the untyped interface


def _pointer(capsule):
    return _capsules.pointer_of(id(capsule), _capsules.name_of(id(capsule)))


def _handlers(function):
    """The functions of the stages of a capsule, or of capsules by stage."""
    stages = function if isinstance(function, dict) else {"execute": function}
    unknown = set(stages) - set(STAGES)
    if unknown or "execute" not in stages:
        raise ValueError(f"headrace_jax: stages {sorted(stages)} of a function, expected execute, and some of {STAGES}")
    return [_Handler(_pointer(stages[stage])) if stage in stages else None for stage in STAGES]


def _add_target(name, function, platform, api_version=0, traits=None):
    _targets[name.decode() if isinstance(name, bytes) else name] = _handlers(function) if api_version == 1 else None


def _add_type(name, registration):
    info = registration.get("type_info")
    _register_type(_pointer(registration["type_id"]), _pointer(info) if info is not None else None)


def _find(name):
    """The functions of a target of this platform, or of the CPU; None: there are none."""
    if name in _targets:
        return _targets[name]
    for found, function, api_version in _private.cpu_targets(name):
        if found == name and api_version == 1:
            return _handlers(function)
    return None


def _rule(default):
    def rule(context, *operands, target_name, attributes, has_side_effect, input_layouts, output_layouts,
             input_output_aliases, **parameters):
        handlers = None if target_name.startswith(OWN) else _find(target_name)
        if handlers is None or not _private.are_arrays((*context.avals_in, *context.avals_out)):
            return default(context, *operands, target_name=target_name, attributes=attributes,
                           has_side_effect=has_side_effect, input_layouts=input_layouts, output_layouts=output_layouts,
                           input_output_aliases=input_output_aliases, **parameters)
        site = _Site(target_name, handlers, _private.ffi_attributes(attributes),
                     _Buffers(tuple(context.avals_in), input_layouts),
                     _Buffers(tuple(context.avals_out), output_layouts), dict(input_output_aliases))
        return _callbacks.emit_call(context, site.call, operands, context.avals_out, has_side_effect=has_side_effect,
                                    at_end=site.context.end)[0]

    return rule


def register(platform):
    """Lets programs for a platform call functions of XLA's FFI."""
    from jax.interpreters import mlir

    primitive = _private.ffi_primitive()
    default = _private.default_rule(primitive)
    if default is not None:
        _private.on_ffi_targets(platform, _add_target, _add_type)
        mlir.register_lowering(primitive, _rule(default), platform=platform)
