"""Every name of JAX that is not public, in one place. tests/test_private.py holds them against the installed JAX."""

import dataclasses
import functools
import importlib
import warnings

# Module, name, and the type that is expected; None: something to call.
NAMES = (
    ("jax._src.xla_bridge", "register_plugin", None),
    ("jax._src.xla_bridge", "_backend_factories", dict),
    ("jax._src.interpreters.mlir", "_platforms_with_donation", list),
    ("jax._src.interpreters.mlir", "_platform_specific_lowerings", dict),
    ("jax._src.interpreters.mlir", "_lowerings", dict),
    ("jax._src.interpreters.mlir", "set_sharding", None),
    ("jax._src.callback", "emit_python_callback", None),
    ("jax._src.xla_bridge", "_init_backend", None),
    ("jax._src.xla_bridge", "_backends", dict),
    ("jax._src.array", "ArrayImpl", None),
    ("jax._src.dlpack", "DLDeviceType", None),
    ("jax._src.dlpack", "_DL_DEVICE_TO_PLATFORM", dict),
    ("jax._src.dlpack", "_jax", object),
    ("jax._src.compilation_cache", "is_cache_used", None),
    ("jax._src.debugging", "inspect_sharding_p", object),
    ("jax._src.compiler", "backend_compile_and_load", None),
    ("jax._src.compiler", "compile_or_get_cached", None),
    ("jax._src.interpreters.mlir", "module_to_bytecode", None),
    ("jaxlib.mlir.passmanager", "PassManager", None),
    ("jax._src.lax.linalg", "_generic_lu_pivots_to_permutation", None),
    ("jax._src.custom_partitioning", "custom_partitioning_p", object),
    ("jax._src.lax.control_flow.conditionals", "cond_p", object),
    ("jax._src.lax.control_flow.conditionals", "platform_index_p", object),
    ("jax._src.export._export", "call_exported_p", object),
    ("jax._src.export._export", "_CUSTOM_CALL_TARGETS_GUARANTEED_STABLE", set),
    ("jax._src.ffi", "ffi_call_p", object),
    ("jax._src.ffi", "_unwrap_kwargs_hashable", None),
    ("jax._src.core", "ShapedArray", None),
    ("jax._src.lib", "xla_client", object),
    ("jax._src.buffer_callback", "buffer_callback_p", object),
    ("jax._src.buffer_callback", "ExecutionStage", None),
)


def _find(module, name):
    return getattr(importlib.import_module(module), name)


def _find_optional(module, name):
    """None: this JAX does not have it."""
    try:
        return _find(module, name)
    except (AttributeError, ImportError):
        return None


def register_plugin(platform, library, priority):
    """Makes the shared library at a path a platform."""
    _find("jax._src.xla_bridge", "register_plugin")(platform, priority=priority, library_path=library)


def be_quiet(platform):
    """Programs that do not name the platform get no warning of it, and run if its device does not open."""
    try:
        factories = _find("jax._src.xla_bridge", "_backend_factories")
        factories[platform] = dataclasses.replace(factories[platform], fail_quietly=True, experimental=False)
    except (AttributeError, KeyError, TypeError):
        pass  # then JAX is as loud as for other plug-ins


def allow_donation(platform):
    """Lets JAX write which arguments are donated into programs of this platform."""
    try:
        platforms = _find("jax._src.interpreters.mlir", "_platforms_with_donation")
    except AttributeError:
        warnings.warn(f"headrace_jax: this JAX donates no buffers to the platform {platform}", stacklevel=3)
        return
    if platform not in platforms:
        platforms.append(platform)


def copy_rules(source, platform, names):
    """Gives a platform the lowering rules that another one has for primitives of these names."""
    try:
        rules = _find("jax._src.interpreters.mlir", "_platform_specific_lowerings")
    except AttributeError:
        warnings.warn(f"headrace_jax: this JAX has no rules to copy: {', '.join(names)}", stacklevel=3)
        return
    for primitive, rule in list(rules[source].items()):
        if primitive.name in names:
            rules[platform].setdefault(primitive, rule)


def set_sharding(context, op, sharding, count):
    """Gives an operation of `count` results the sharding that JAX passes to the emitter of callbacks, which has one for
    each result but the token."""
    if hasattr(sharding, "shardings"):
        first = sharding.shardings[0]
        missing = max(count, 1) - len(sharding.shardings)
        token = dataclasses.replace(first, mesh_shape=(), dim_shardings=())
        sharding = dataclasses.replace(sharding, shardings=(token,) * missing + tuple(sharding.shardings))
    _find("jax._src.interpreters.mlir", "set_sharding")(context.module_context, op, sharding)


def fall_back_to_rules(platform, source):
    """Lets a platform have another one's lowering rules for primitives without an own or a default one."""
    try:
        rules = _find("jax._src.interpreters.mlir", "_platform_specific_lowerings")
        defaults = _find("jax._src.interpreters.mlir", "_lowerings")
    except AttributeError:
        return  # then such primitives are an error
    if getattr(rules[platform], "source", None) == source:
        return

    class Rules(dict):
        def __contains__(self, primitive):
            return super().__contains__(primitive) or (primitive not in defaults and primitive in rules[source])

        def __missing__(self, primitive):
            return rules[source][primitive]

    rules[platform] = Rules(rules[platform])
    rules[platform].source = source


def branch_primitives():
    """Primitives that choose by the platform, and their parameter with the platforms of each branch."""
    module = "jax._src.lax.control_flow.conditionals"
    wanted = (("cond_p", "branches_platforms"), ("platform_index_p", "platforms"))
    try:
        return [(_find(module, name), parameter) for name, parameter in wanted]
    except (AttributeError, ImportError):
        return []


def inspect_primitive():
    """The primitive of jax.debug.inspect_array_sharding; None: this JAX has another one."""
    return _find_optional("jax._src.debugging", "inspect_sharding_p")


def exported_primitive():
    """The primitive of calls of exported functions; None: this JAX has another one."""
    return _find_optional("jax._src.export._export", "call_exported_p")


def allow_export(target):
    """Lets jax.export keep custom calls of a target: later versions know it, too."""
    targets = _find_optional("jax._src.export._export", "_CUSTOM_CALL_TARGETS_GUARANTEED_STABLE")
    if targets is not None:
        targets.add(target)


def rule_of(platform, primitive):
    """A platform's own lowering rule; None: it has none."""
    try:
        entry = _find("jax._src.interpreters.mlir", "_platform_specific_lowerings")[platform].get(primitive)
    except AttributeError:
        return None
    return getattr(entry, "rule", None)


def default_rule(primitive):
    """The lowering rule of platforms that have no own one; None: there is none."""
    try:
        entry = _find("jax._src.interpreters.mlir", "_lowerings").get(primitive)
    except AttributeError:
        return None
    return getattr(entry, "rule", None)


def partitioned_primitive():
    """The primitive of jax.experimental.custom_partitioning; None: this JAX has another one."""
    return _find_optional("jax._src.custom_partitioning", "custom_partitioning_p")


def buffer_callback_primitive():
    """The primitive of jax.experimental.buffer_callback; None: this JAX has another one."""
    return _find_optional("jax._src.buffer_callback", "buffer_callback_p")


def execute_stage():
    """The stage at which callbacks with buffers run."""
    return _find("jax._src.buffer_callback", "ExecutionStage").EXECUTE


def ffi_primitive():
    """The primitive of jax.ffi.ffi_call; None: this JAX has another one."""
    return _find_optional("jax._src.ffi", "ffi_call_p")


def ffi_attributes(attributes):
    """The attributes of a call by name, as the caller wrote them."""
    return dict(_find("jax._src.ffi", "_unwrap_kwargs_hashable")(attributes))


def are_arrays(avals):
    """True if all are arrays of dtypes that NumPy has, no tokens and no keys."""
    kind = _find("jax._src.core", "ShapedArray")
    return all(type(aval) is kind and hasattr(aval.dtype, "itemsize") for aval in avals)


def on_ffi_targets(platform, add_target, add_type):
    """Calls add_target(name, function, platform, api_version, traits) for each target of a platform, and
    add_type(name, registration) for each type, those that are registered already among them."""
    client = _find("jax._src.lib", "xla_client")
    client.register_custom_call_handler(platform, add_target)
    client.register_custom_type_handler(platform, add_type)


def cpu_targets(name):
    """Targets of JAX's CPU platform, the wanted one among them if there is one: (name, function, api_version)."""
    client = _find("jax._src.lib", "xla_client")
    waiting = client._custom_callback.get(client.xla_platform_names.get("cpu", "cpu"), [])
    found = [(of, function, version) for of, function, version, *_ in waiting]
    functions = client.custom_call_targets("cpu").get(name)
    return found + ([(name, functions, 1)] if isinstance(functions, dict) else [])


def lu_permutation(pivots, rows):
    """The order of rows after the exchanges of an LU factorisation, as JAX computes it: a loop."""
    return _find("jax._src.lax.linalg", "_generic_lu_pivots_to_permutation")(pivots, rows)


def replace_callbacks(platform, emit):
    """Lets emit(original, *arguments) write the callbacks of programs for a platform. JAX's own function, which the
    lowering rules of all callbacks call, refuses platforms that it does not know."""
    try:
        original = _find("jax._src.callback", "emit_python_callback")
    except AttributeError:
        warnings.warn(f"headrace_jax: this JAX has no callbacks on the platform {platform}", stacklevel=3)
        return
    if getattr(original, "platform", None) == platform:
        return

    def choose(context, *arguments, **options):
        is_here = tuple(context.module_context.platforms) == (platform,)
        return (emit if is_here else original)(context, *arguments, **options)

    choose.platform = platform
    for module in ("jax._src.callback", "jax.interpreters.mlir"):  # the latter has it for rules of other modules
        importlib.import_module(module).emit_python_callback = choose


def allow_cache(platform):
    """Lets JAX keep compiled programs of a platform in its cache (jax_compilation_cache_dir)."""
    try:
        original = _find("jax._src.compilation_cache", "is_cache_used")
    except AttributeError:
        return  # then programs are not kept
    if getattr(original, "platform", None) == platform:
        return

    class Known:
        platform, supports_executable_serialization = "cpu", True

    def is_used(backend):
        return original(Known if backend.platform == platform else backend)

    is_used.platform = platform
    importlib.import_module("jax._src.compilation_cache").is_cache_used = is_used


def change_programs(platform, change):
    """Makes programs for a platform change(module, options) before they are compiled."""
    try:
        original = _find("jax._src.compiler", "backend_compile_and_load")
    except AttributeError:
        return  # then they are compiled as they are
    if getattr(original, "platform", None) == platform:
        return

    @functools.wraps(original)
    def compile_and_load(backend, module, devices, options, *arguments, **named):
        if backend.platform == platform:
            module = change(module, options)
        return original(backend, module, devices, options, *arguments, **named)

    compile_and_load.platform = platform
    importlib.import_module("jax._src.compiler").backend_compile_and_load = compile_and_load


def check_compilations(platform, check):
    """Calls check() before a program for a platform is compiled, or loaded from JAX's cache."""
    compiler = importlib.import_module("jax._src.compiler")
    original = getattr(compiler, "compile_or_get_cached", None)
    if original is None or getattr(original, "checks", None) == platform:
        return

    @functools.wraps(original)
    def compile_or_get_cached(backend, *arguments, **named):
        if backend.platform == platform:
            check()
        return original(backend, *arguments, **named)

    compile_or_get_cached.checks = platform
    compiler.compile_or_get_cached = compile_or_get_cached


def is_backend_open(platform):
    """True if this process, or the one that it was forked from, has opened the platform."""
    return platform in (_find_optional("jax._src.xla_bridge", "_backends") or {})


def module_bytes(module):
    """A program as bytes, from which an equal one can be read."""
    return _find("jax._src.interpreters.mlir", "module_to_bytecode")(module)


def run_passes(module, pipeline):
    """Runs passes of MLIR over a program, in the present context."""
    _find("jaxlib.mlir.passmanager", "PassManager").parse(pipeline).run(module.operation)


def open_cpu():
    """Makes JAX's CPU backend available, on which callbacks have their arguments, if JAX_PLATFORMS leaves it out."""
    backends = _find("jax._src.xla_bridge", "_backends")
    if backends and "cpu" not in backends:
        backends["cpu"] = _find("jax._src.xla_bridge", "_init_backend")("cpu")


def wrap_array_method(name, wrap):
    """Makes the method of arrays wrap(original)."""
    kind = _find("jax._src.array", "ArrayImpl")
    original = getattr(kind, name)
    if getattr(original, "is_wrapped", False):
        return
    method = wrap(original)
    functools.update_wrapper(method, original, assigned=("__name__", "__doc__"))  # methods of C++ have no more
    method.is_wrapped = True
    setattr(kind, name, method)


def dlpack_cpu():
    """DLPack's type of the host's memory."""
    return _find("jax._src.dlpack", "DLDeviceType").kDLCPU


def import_dlpack(choose, read):
    """Lets choose(type of memory) name the platform on which JAX imports memory of the host, and
    read(original, capsule, device, ...) make arrays of capsules."""
    module = importlib.import_module("jax._src.dlpack")
    if getattr(module._jax, "is_wrapped", False):
        return

    class Platforms(dict):
        def __getitem__(self, kind):
            return choose(kind) if kind == dlpack_cpu() else super().__getitem__(kind)

    class Library:
        is_wrapped, library = True, module._jax

        def __getattr__(self, name):
            return getattr(self.library, name)

        def dlpack_managed_tensor_to_buffer(self, *arguments):
            return read(self.library.dlpack_managed_tensor_to_buffer, *arguments)

    module._DL_DEVICE_TO_PLATFORM = Platforms(module._DL_DEVICE_TO_PLATFORM)
    module._jax = Library()
