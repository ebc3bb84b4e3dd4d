"""The PyTorch device `headrace`: importing this module registers it; afterwards it is also `torch.headrace`.

    x = torch.randn(3, device="headrace")
    model = model.to("headrace")
    torch.headrace.stats()["commits"]

HEADRACE_DEVICE selects the devices: all of a driver ("cpu", which has one, or "cuda"), or one of them ("cuda:1"). Each has one queue that runs in order. Operations are deferred and run when a value is needed.
"""

import atexit
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import warnings

import torch
import torch.utils.dlpack

import headrace
from headrace import optim

# ---- the libraries


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "operations commits commits_by_read commits_by_limit commits_by_request commits_by_mode cache_hits "
            "cache_entries compiles compile_ns groups kernels kernels_interpreted library_calls bytes_moved bytes_copied_in "
            "bytes_copied_out temporary_bytes temporaries_elided cached_weights_bytes jit_compiled jit_loaded jit_unable jit_ns "
            "jit_waiting graph_launches graph_builds graph_updates layouts_undone"
        ).split()
    ]


class _MemoryStats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "allocated_bytes allocated_bytes_peak reserved_bytes reserved_bytes_peak limit_bytes allocation_count "
            "driver_allocation_count device_free_bytes device_total_bytes"
        ).split()
    ]


class _DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("driver", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("ordinal", ctypes.c_int),
        ("workers", ctypes.c_int),
        ("is_host", ctypes.c_bool),
        ("total_bytes", ctypes.c_int64),
    ]


def _find_onednn():
    """Names oneDNN's library for the core, unless the user did: wheels put it where no loader looks."""
    if os.environ.get("HEADRACE_ONEDNN"):
        return
    for package in ("onednn-cpu-gomp", "onednn"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "libdnnl.so.3" and file.locate().exists():
                os.environ["HEADRACE_ONEDNN"] = str(pathlib.Path(file.locate()).resolve())
                return
    path = pathlib.Path(sys.prefix) / "lib" / "libdnnl.so.3"
    if path.exists():
        os.environ["HEADRACE_ONEDNN"] = str(path)


def _find_lapack():
    """The same for OpenBLAS, which is not needed before linear algebra is."""
    if os.environ.get("HEADRACE_LAPACK"):
        return
    try:
        files = importlib.metadata.files("scipy-openblas32") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "libscipy_openblas.so" and file.locate().exists():
            os.environ["HEADRACE_LAPACK"] = str(pathlib.Path(file.locate()).resolve())
            return


def _find_cuda():
    """Names the folders where NVIDIA's wheels put their libraries, unless the user did: the loader looks in none of them."""
    if os.environ.get("HEADRACE_CUDA_LIBS"):
        return
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    folders = [str(path) for root in roots for path in sorted(pathlib.Path(root).glob("*/lib")) if path.is_dir()]
    if folders:
        os.environ["HEADRACE_CUDA_LIBS"] = ":".join(folders)


def _warn_without_onednn():
    """Everything works without it, so slowly that somebody would look for the reason."""
    path = os.environ.get("HEADRACE_ONEDNN") or "libdnnl.so.3"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        warnings.warn(
            f"headrace: oneDNN could not be loaded ({error}): matrix products and convolutions run slowly. "
            "`pip install onednn-cpu-gomp` brings it; HEADRACE_ONEDNN says where another libdnnl.so.3 lies.",
            RuntimeWarning,
            stacklevel=3,
        )


def _find_library():
    """The shim: installed with this package, or named by HEADRACE_TORCH_LIBRARY in a source tree."""
    named = os.environ.get("HEADRACE_TORCH_LIBRARY")
    if named:
        return named
    candidates = [pathlib.Path(folder) / "lib" / "libheadrace_torch.so" for folder in headrace.__path__]
    for path in candidates:
        if path.exists():
            return path
    raise ImportError("headrace: libheadrace_torch.so is not built; looked at " + ", ".join(map(str, candidates)))


def _check_version(path):
    """The library fits one minor version of torch; in another it could crash instead of failing to load."""
    note = pathlib.Path(path).with_name("torch_version")
    built_for = note.read_text().strip() if note.exists() else torch.__version__
    if built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise ImportError(
            f"headrace was built for torch {built_for}, and this is torch {torch.__version__}: install headrace again"
        )


def _load_library():
    path = _find_library()
    _check_version(path)
    library = ctypes.CDLL(str(path))
    for name in ("error", "fallbacks"):
        getattr(library, f"headrace_torch_{name}").restype = ctypes.c_char_p
    library.headrace_torch_memory_limit.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.headrace_torch_set_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.headrace_torch_seed.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.headrace_torch_set_rng_state.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    return library


_find_onednn()
_find_lapack()
_find_cuda()
_library = _load_library()
_python_library = ctypes.PyDLL(_library._name)  # what is called with the interpreter's lock, and raises


def _call(name, *arguments):
    _check(getattr(_library, "headrace_torch_" + name)(*arguments))


def _check(code):
    if code == 1:  # a signal's handler has raised
        _python_library.headrace_torch_raise()
    if code != 0:
        message = _library.headrace_torch_error().decode()
        raise {8: torch.OutOfMemoryError, 10: torch.linalg.LinAlgError, 11: IndexError}.get(code, RuntimeError)(message)


# ---- the device


def is_available():
    """True if the device can be used: the driver finds one, and this process was not forked after its first use."""
    return not _is_in_bad_fork() and device_count() > 0


def is_initialized():
    """True if the device has been used, or `init` has been called."""
    return bool(_library.headrace_torch_is_open())


def __getattr__(name):
    if name == "_initialized":  # torch's checkpointing asks before it keeps the random state
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init():
    """Opens the device now instead of at its first use; raises the reason if there is none."""
    if not is_initialized():
        if os.environ.get("HEADRACE_DEVICE", "cpu").startswith("cpu"):
            _warn_without_onednn()
        _call("open")


_lazy_init = init


def _is_in_bad_fork():
    return bool(_library.headrace_torch_in_bad_fork())


def device_count():
    """The number of devices; 0 if HEADRACE_DEVICE names none. The first use of the device then raises the reason."""
    return _library.headrace_torch_device_count()


def current_device():
    """The index of this thread's current device."""
    return _library.headrace_torch_current_device()


def _index_of(device):
    """The number of a device given as torch.device, name or number; the current one's for None and below 0."""
    if device is None:
        index = -1
    elif isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type != "headrace":
            raise ValueError(f"Expected a headrace device, but got: {device}")
        index = -1 if device.index is None else device.index
    if index > 0 and index >= device_count():
        count = device_count()
        if count == 0:
            _call("open")  # raises the reason
        there_is = "there is 1 device, headrace:0" if count == 1 else f"there are {count} devices"
        raise RuntimeError(f"headrace:{index} was asked for, but {there_is}")
    return current_device() if index < 0 else index


def set_device(device):
    """Sets this thread's current device: new tensors of device="headrace" are made there."""
    _call("set_device", _index_of(device))


class device:  # noqa: N801 (torch.cuda.device is lower case too)
    """Context manager that sets the current device."""

    def __init__(self, device):
        self.idx, self.prev_idx = _index_of(device), -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)
        return self

    def __exit__(self, *error):
        _exchange_device(self.prev_idx)
        return False


class device_of(device):  # noqa: N801
    """Context manager that sets the current device to a tensor's; a tensor of another device type changes nothing."""

    def __init__(self, tensor):
        super().__init__(tensor.device if tensor.device.type == "headrace" else None)


def _exchange_device(index):
    """Chooses a device, unless the number is below 0; gives the one before."""
    before = current_device()
    set_device(index)
    return before


_maybe_exchange_device = _exchange_device


class _DeviceProperties:
    """What get_device_properties returns: kind ("cpu", "cuda"), name, ordinal among the kind's devices, total_memory in
    bytes, multi_processor_count (of a CPU: threads), is_host (its memory is the host's)."""

    def __init__(self, info):
        self.kind, self.name = info.driver.decode(), info.description.decode()
        self.ordinal, self.multi_processor_count = info.ordinal, info.workers
        self.total_memory, self.is_host = info.total_bytes, info.is_host

    def __repr__(self):
        return f"_DeviceProperties({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def get_device_properties(device=None):
    """A record of a device: kind, name, ordinal, total_memory in bytes, multi_processor_count, is_host."""
    info = _DeviceInfo()
    _call("describe", _index_of(device), ctypes.byref(info))
    return _DeviceProperties(info)


def get_device_name(device=None):
    """A device's description, such as the CPU's or GPU's model."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """None: there are no versions of capability."""
    _index_of(device)
    return None


def synchronize(device=None):
    """Commits everything pending and waits; raises the first error of that work."""
    _call("synchronize", -1 if device is None else _index_of(device))


_make_synchronize = ctypes.PyDLL(_library._name).headrace_torch_make_synchronize  # called with the interpreter's lock
_make_synchronize.argtypes = [ctypes.py_object, ctypes.py_object]
_make_synchronize.restype = ctypes.py_object
synchronize = _make_synchronize(synchronize, _check)  # small steps wait after each call: no detours


def commit():
    """Commits everything pending without waiting."""
    _call("commit")


def get_amp_supported_dtype():
    """The dtypes that torch.autocast accepts: bfloat16 and float16."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported():
    """True."""
    return True


# ---- streams and events: names for a device's one queue


class Stream(torch.Stream):
    """A queue of work. All of them are their device's one queue, which runs in order."""

    def __new__(cls, device=None, priority=0, **names):
        if names:
            return super().__new__(cls, priority=priority, **names)
        return super().__new__(cls, torch.device("headrace", _index_of(device)), priority=priority)


class Event(torch.Event):
    """A mark in the queue. With enable_timing, recording waits for the work before it."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return super().__new__(
            cls, "headrace", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def current_stream(device=None):
    """The device's current stream. All streams are names for its one queue."""
    index, number = _index_of(device), ctypes.c_int64()
    _call("stream", index, ctypes.byref(number))
    return _stream_of(index, number.value)


def default_stream(device=None):
    """The device's default stream."""
    return _stream_of(_index_of(device), 0)


def _stream_of(index, number):
    return Stream(stream_id=number, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream):
    """Makes a stream the current one, and its device too."""
    index = _index_of(stream.device)
    _call("set_stream", index, stream.stream_id)
    set_device(index)


class stream:  # noqa: N801
    """Context manager that makes a stream the current one."""

    def __init__(self, stream):
        self._stream, self._before, self._device = stream, None, -1

    def __enter__(self):
        if self._stream is not None:
            self._before, self._device = current_stream(self._stream.device), current_device()
            set_stream(self._stream)

    def __exit__(self, *error):
        if self._stream is not None:
            set_stream(self._before)
            set_device(self._device)


# ---- random numbers


def manual_seed(seed):
    """Seeds the current device's generator."""
    _call("seed", current_device(), int(seed) & (2**64 - 1))


def manual_seed_all(seed):
    """Seeds the generators of all devices."""
    for index in range(max(1, device_count())):
        _call("seed", index, int(seed) & (2**64 - 1))


def seed():
    """Seeds the current device's generator with a random number."""
    manual_seed(int.from_bytes(os.urandom(8), "little"))


def seed_all():
    """Seeds the generators of all devices with one random number."""
    manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def _rng_words(device=None):
    words = ctypes.c_uint64(), ctypes.c_uint64()
    _call("rng_state", _index_of(device), ctypes.byref(words[0]), ctypes.byref(words[1]))
    return words[0].value, words[1].value


def initial_seed():
    """The seed of the current device's generator."""
    return _rng_words()[0]


def get_rng_state(device="headrace"):
    """A generator's state: a uint8 tensor of 16 bytes on the CPU, the seed and the offset."""
    state = b"".join(word.to_bytes(8, sys.byteorder) for word in _rng_words(device))
    return torch.frombuffer(bytearray(state), dtype=torch.uint8).clone()


def get_rng_state_all():
    """The states of the generators of all devices, as a list."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device="headrace"):
    """Restores a state that `get_rng_state` returned."""
    index = _index_of(device)
    state = bytes(new_state.cpu().to(torch.uint8).tolist())
    if len(state) != 16:
        raise RuntimeError(f"RNG state is wrong size: {len(state)} bytes, expected 16")
    _call("set_rng_state", index, *(int.from_bytes(state[at : at + 8], sys.byteorder) for at in (0, 8)))


def set_rng_state_all(new_states):
    """Restores the states that `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- counters, modes, fallback

_MODES = ("fuse", "eager", "strict")
_FALLBACKS = ("error", "warn", "allow")


def stats(device=None):
    """A dict of counters since the first use or the last `reset_stats`; docs/watching.md explains each.

    Operations, commits and their reasons, cache hits, compiles and their time; groups that ran: kernels (interpreted,
    compiled) and library calls, and the bytes they moved; temporaries that got no memory; host fallbacks by operator;
    background compilation; and compiled graphs: captures, runs, and runs operation by operation."""
    values = _Stats()
    _call("stats", _index_of(device), ctypes.byref(values))
    result = {name: getattr(values, name) for name, _ in _Stats._fields_}
    result["kernels_compiled"] = result["kernels"] - result["kernels_interpreted"]
    result["fallbacks_by_name"] = fallbacks()
    result["fallbacks"] = sum(result["fallbacks_by_name"].values())
    captures, runs = ctypes.c_int64(), ctypes.c_int64()
    _library.headrace_torch_graph_counts(ctypes.byref(captures), ctypes.byref(runs))
    result["graph_captures"], result["graph_runs"] = captures.value, runs.value
    result["graph_eager_runs"] = _eager_runs
    return result


_eager_runs = 0


def _note_eager_run():
    """A compiled graph ran operation by operation (headrace.compile)."""
    global _eager_runs
    _eager_runs += 1


def reset_stats(device=None):
    """Sets the device's counters to 0, and those of compiled graphs and fallbacks."""
    global _eager_runs
    _eager_runs = 0
    _call("reset_stats", _index_of(device))
    _library.headrace_torch_reset_graph_counts()
    _library.headrace_torch_reset_fallbacks()


def get_mode():
    """The mode of all devices: "fuse", "eager" or "strict"."""
    mode = ctypes.c_int()
    _call("mode", ctypes.byref(mode))
    return _MODES[mode.value]


def set_mode(mode):
    """Sets the mode. fuse: defer and fuse; eager: run each operation at once; strict: also wait for it.

    In strict mode every error is raised at the line that caused it."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    _call("set_mode", _MODES.index(mode))


def get_fallback():
    """What happens to operators that the device lacks: "error", "warn" or "allow"."""
    return _FALLBACKS[_library.headrace_torch_fallback()]


def set_fallback(mode):
    """Sets what happens to operators that the device lacks.

    "error" raises; "warn" runs them on the host with a warning, "allow" without one."""
    if mode not in _FALLBACKS:
        raise ValueError(f"fallback must be one of {', '.join(_FALLBACKS)}, not {mode!r}")
    _call("set_fallback", _FALLBACKS.index(mode))


def fallbacks():
    """Host fallbacks by operator: {name: count}."""
    lines = _library.headrace_torch_fallbacks().decode().splitlines()
    return {name: int(count) for name, count in (line.rsplit(" ", 1) for line in lines)}


# ---- memory


def memory_stats(device=None):
    """A dict of a device's memory in bytes: allocated, reserved, their peaks, limit, free, total; and allocation counts."""
    values = _MemoryStats()
    _call("memory_stats", _index_of(device), ctypes.byref(values))
    return {name: getattr(values, name) for name, _ in _MemoryStats._fields_}


def memory_allocated(device=None):
    """Bytes bound to live tensors and to temporaries of cached programs."""
    return memory_stats(device)["allocated_bytes"]


def max_memory_allocated(device=None):
    """The peak of `memory_allocated` since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes_peak"]


def memory_reserved(device=None):
    """Bytes that the allocator holds: allocated and cached."""
    return memory_stats(device)["reserved_bytes"]


def max_memory_reserved(device=None):
    """The peak of `memory_reserved` since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["reserved_bytes_peak"]


def reset_peak_memory_stats(device=None):
    """Sets the peaks to the current values."""
    _call("memory_reset_peak", _index_of(device))


def mem_get_info(device=None):
    """Free and total bytes of a device."""
    values = memory_stats(device)
    return values["device_free_bytes"], values["device_total_bytes"]


def empty_cache():
    """Returns cached memory to the driver."""
    _call("memory_trim")


def set_memory_limit(size, device=None):
    """Limits the bytes that a device reserves; 0 removes the limit."""
    _call("memory_limit", _index_of(device), int(size))


def set_per_process_memory_fraction(fraction, device=None):
    """Limits what a device reserves to a fraction (0 to 1) of its total memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, not {fraction}")
    set_memory_limit(max(1, int(mem_get_info(device)[1] * fraction)), device)


# ---- registration


def _refuse_dlpack():
    """A handle is no address that another library could read."""

    def refusing(function):
        @functools.wraps(function)
        def to_dlpack(tensor, *arguments, **names):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "headrace":
                raise BufferError(
                    "headrace: tensors have no address to share through DLPack; copy to the host first: tensor.cpu()"
                )
            return function(tensor, *arguments, **names)

        return to_dlpack

    torch.Tensor.__dlpack__ = refusing(torch.Tensor.__dlpack__)
    for module in (torch._C, torch, torch.utils.dlpack):
        for name in ("_to_dlpack", "_to_dlpack_versioned", "to_dlpack"):
            if hasattr(module, name):
                setattr(module, name, refusing(getattr(module, name)))


def _register_reductions():
    """Between processes tensors of the device become host tensors: handles mean nothing elsewhere."""
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def reduce_tensor(tensor):
        if tensor.device.type == "headrace":
            return reductions.reduce_tensor(
                tensor.detach().cpu().requires_grad_(tensor.requires_grad and tensor.is_leaf)
            )
        return reductions.reduce_tensor(tensor)

    ForkingPickler.register(torch.Tensor, reduce_tensor)

    def reduce_parameter(parameter):
        if parameter.device.type == "headrace":
            values = torch.nn.Parameter(parameter.detach().cpu(), parameter.requires_grad)
            return reductions.reduce_tensor(values)
        return reductions.reduce_tensor(parameter)

    ForkingPickler.register(torch.nn.parameter.Parameter, reduce_parameter)


def _choose_as_for_the_host():
    """torch accumulates the chunked linear_cross_entropy of half precision in float32 on the devices that it lists, and in the
    narrow dtype elsewhere; ours gets the CPU's choices."""
    options = sys.modules.get("torch.nn.modules.linear_cross_entropy_options")
    if options is None:
        return  # an older torch
    defaults, cls = options._AUTO_DEFAULTS, options.LinearCrossEntropyOptions
    defaults.update({("headrace", dtype): chosen for (kind, dtype), chosen in defaults.items() if kind == "cpu"})
    resolve = cls._resolve_auto_acc_dtype

    def resolve_as_for_the_host(dtype, device):
        return resolve(dtype, torch.device("cpu") if device is not None and device.type == "headrace" else device)

    cls._resolve_auto_acc_dtype = staticmethod(resolve_as_for_the_host)


def _tensor_text(tensor, *, tensor_contents=None):
    """repr() formats one copy of a device tensor: formatting on the device would read it number by number."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "headrace"
    if (
        plain
        and tensor.layout == torch.strided
        and tensor_contents is None
        and tensor.numel() > 0
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ):
        with torch.no_grad():
            tensor_contents = torch._tensor_str._tensor_str(tensor.detach().cpu(), len("tensor("))
    return _plain_text(tensor, tensor_contents=tensor_contents)


def _finish():
    """Waits for the device before the interpreter ends, without holding the interpreter's lock.

    A thread of autograd that has just finished a backward pass drops Python objects; if it asks for the lock when the
    interpreter is ending, the process aborts. (The core itself waits for its work when the process exits.)
    """
    try:
        _call("synchronize_all")
    except Exception:
        pass  # nobody is left to read the error


def _register():
    global _plain_text
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "headrace"):
        raise ImportError(f"headrace: another device ({name}) is registered already; torch has room for one")
    if name == "privateuseone":
        torch.utils.rename_privateuse1_backend("headrace")
    torch._register_device_module("headrace", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _refuse_dlpack()
    _plain_text = torch._tensor_str._str
    torch._tensor_str._str = _tensor_text
    _register_reductions()
    _choose_as_for_the_host()
    optim.register(_library)
    chosen = os.environ.get("HEADRACE_DEVICE", "")
    if torch.version.cuda is None or chosen.startswith("cuda"):
        torch._C._set_multithreading_enabled(False)  # see docs/decisions.md: backward passes run on the calling thread
    atexit.register(_finish)
    if fallback := os.environ.get("HEADRACE_FALLBACK"):
        set_fallback(fallback)
    if chosen:
        _call("set_device_name", chosen.encode())


_register()
