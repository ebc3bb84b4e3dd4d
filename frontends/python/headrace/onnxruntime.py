"""The interface of ONNX Runtime on Headrace's sessions: `import headrace.onnxruntime as ort`. docs/onnxruntime.md lists
the names.

Models are ONNX files, packages (docs/graphs.md) and their bytes. Options without a meaning here are stored. Names that
can't be served raise NotImplementedError with their name.
"""

import ctypes
import enum
import json
import os
import threading
import time

import numpy as np

import headrace as hr
from headrace import _arrays
from headrace._arrays import Graph, Session

__all__ = [
    "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata",
    "NodeArg", "OrtDevice", "OrtValue", "RunOptions", "SessionIOBinding", "SessionOptions", "disable_telemetry_events",
    "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info", "get_device",
    "get_version_string", "set_default_logger_severity", "set_default_logger_verbosity", "set_seed",
]  # fmt: skip
__version__ = version = "1.32.0"  # whose interface this is

_REFUSED = frozenset(
    """
AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext
ModelPackageOptions ModelPackageWriteMode OrtAllocatorType OrtArenaCfg OrtCompileApiFlags OrtDeviceMemoryType
OrtDeviceVendorId OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData OrtEpContextDataBuffer OrtEpDevice
OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo OrtHardwareDevice OrtHardwareDeviceType OrtMemType
OrtMemoryInfo OrtMemoryInfoDeviceType OrtSparseFormat OrtSyncStream SparseTensor copy_tensors
create_and_register_allocator create_and_register_allocator_v2 get_ep_devices has_collective_ops preload_dlls
register_execution_provider_library set_default_logger_callback set_global_thread_pool_sizes
unregister_execution_provider_library
""".split()
)


def __getattr__(name):
    if name in _REFUSED:
        raise NotImplementedError(f"headrace.onnxruntime has no {name}: docs/onnxruntime.md lists the names it has")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _refuse(name, reason):
    raise NotImplementedError(f"{name}: {reason}")


# ---- options


class GraphOptimizationLevel(enum.IntEnum):
    """Accepted, and without effect but for ORT_DISABLE_ALL, which keeps all operations."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted; records of a graph run in their order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted; records of a graph run in their order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """Texts by name, which are stored."""

    def __init__(self):
        self._entries = {}

    def _add(self, key, value):
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a config entry is two texts, not {key!r} and {value!r}")
        self._entries[key] = value

    def _get(self, key):
        if key not in self._entries:
            raise KeyError(f"there is no config entry {key!r}")
        return self._entries[key]


class SessionOptions(_Entries):
    """The options of ONNX Runtime 1.32. Free dims that are overridden, initializers, intra_op_num_threads and the
    optimization level ORT_DISABLE_ALL have an effect; the others are stored."""

    _NAMES = frozenset(
        """enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse enable_profiling execution_mode execution_order
        graph_optimization_level inter_op_num_threads intra_op_num_threads log_severity_level log_verbosity_level logid
        optimized_model_filepath profile_file_prefix use_deterministic_compute use_per_session_threads""".split()
    )

    def __init__(self):
        super().__init__()
        self.enable_cpu_mem_arena = self.enable_mem_pattern = self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode, self.execution_order = ExecutionMode.ORT_SEQUENTIAL, ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = self.intra_op_num_threads = 0
        self.log_severity_level, self.log_verbosity_level, self.logid = -1, 0, ""
        self.optimized_model_filepath, self.profile_file_prefix = "", "onnxruntime_profile_"
        self.use_deterministic_compute, self.use_per_session_threads = False, True
        self._dims, self._initializers, self._providers = {}, {}, []

    def __setattr__(self, name, value):
        if name not in self._NAMES and not name.startswith("_"):
            raise AttributeError(f"SessionOptions has no option {name!r}")
        object.__setattr__(self, name, value)

    def add_session_config_entry(self, key, value):
        """Stores a text by name."""
        self._add(key, value)

    def get_session_config_entry(self, key):
        """A stored text."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name, value):
        """The size of a symbol of the model's inputs."""
        self._dims[str(name)] = int(value)

    def add_free_dimension_override_by_denotation(self, name, value):
        """Refused: models' denotations are not read."""
        _refuse("add_free_dimension_override_by_denotation", f"denotations such as {name!r} are not read: use the name")

    def add_initializer(self, name, value):
        """Elements in the place of an input of the model."""
        self._initializers[name] = np.asarray(value.numpy() if isinstance(value, OrtValue) else value)

    def add_external_initializers(self, names, values):
        """Elements in the place of inputs of the model."""
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(self, *files):
        """Refused: data of a model beside its file is read from the folder."""
        _refuse("add_external_initializers_from_files_in_memory", "data beside a model is read from its folder")

    def add_provider(self, name, options=None):
        """Stores a provider for sessions that name none."""
        self._providers.append((name, dict(options or {})))

    def add_provider_for_devices(self, *devices):
        """Refused: devices have names here."""
        _refuse("add_provider_for_devices", "devices of plug-ins are not supported: use providers=")

    def has_providers(self):
        """True if a provider was added."""
        return bool(self._providers)

    def register_custom_ops_library(self, path):
        """Refused: operators of ONNX Runtime's own libraries can't run here."""
        _refuse("register_custom_ops_library", f"{path!r} has operators for ONNX Runtime alone")

    def set_provider_selection_policy(self, policy):
        """Refused: the device is that of providers=."""
        _refuse("set_provider_selection_policy", "the device is that of providers=")

    def set_provider_selection_policy_delegate(self, delegate):
        """Refused: the device is that of providers=."""
        _refuse("set_provider_selection_policy_delegate", "the device is that of providers=")

    def set_load_cancellation_flag(self, flag):
        """Refused: a load can't be cancelled."""
        _refuse("set_load_cancellation_flag", "a load can't be cancelled")

    def set_ep_context_data_read_func(self, function):
        """Refused: models have no compiled parts."""
        _refuse("set_ep_context_data_read_func", "models have no compiled parts here")

    def clear_ep_context_data_read_func(self):
        """Nothing is there to clear."""


class RunOptions(_Entries):
    """The options of a run; `terminate` set before a run makes it fail, the others are stored."""

    def __init__(self):
        super().__init__()
        self.log_severity_level, self.log_verbosity_level, self.logid = -1, 0, ""
        self.only_execute_path_to_fetches = self.terminate = False

    def add_run_config_entry(self, key, value):
        """Stores a text by name."""
        self._add(key, value)

    def get_run_config_entry(self, key):
        """A stored text."""
        return self._get(key)

    def add_active_adapter(self, adapter):
        """Refused: adapters are not supported."""
        _refuse("add_active_adapter", "adapters are not supported")


# ---- devices

_PROVIDERS = {"CUDAExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}


def _has_device(name):
    try:
        _arrays.zeros((), device=name)
    except (RuntimeError, ValueError, OSError, TypeError):
        return False
    return True


def get_available_providers():
    """The providers whose device this machine has."""
    return [provider for provider, device in _PROVIDERS.items() if device == "cpu" or _has_device(device)]


def get_all_providers():
    """The providers that this package knows."""
    return list(_PROVIDERS)


def get_device():
    """GPU, or CPU without one."""
    return "GPU" if len(get_available_providers()) > 1 else "CPU"


class OrtDevice:
    """A device: its type and number."""

    def __init__(self, device_type, memory_type=0, device_id=0):
        self._type, self._id = device_type, device_id

    @staticmethod
    def make(name, device_id=0):
        """The device of a name: cpu, cuda."""
        if name not in ("cpu", "cuda"):
            raise ValueError(f"OrtDevice: {name!r}, expected 'cpu' or 'cuda'")
        return OrtDevice(name, 0, device_id)

    def device_type(self):
        """cpu or cuda."""
        return self._type

    def device_id(self):
        """The number."""
        return self._id

    def device_mem_type(self):
        """Memory of the device's usual kind."""
        return 0

    def device_vendor_id(self):
        """Not known."""
        return 0


def _device_name(providers, provider_options):
    """The device of the first provider that this machine has, and the providers in use."""
    options = list(provider_options or [])
    available = get_available_providers()
    found = []
    for i, provider in enumerate(providers):
        name, own = provider if isinstance(provider, tuple) else (provider, options[i] if i < len(options) else {})
        if not isinstance(name, str):
            raise ValueError(f"InferenceSession: provider {provider!r}, expected a name, or a name and a dict")
        if name in available:
            found.append((name, dict(own)))
        elif name not in _PROVIDERS and not name.endswith("ExecutionProvider"):
            raise ValueError(f"InferenceSession: provider {name!r}, expected one of {available}")
    if not found:
        found = [("CPUExecutionProvider", {})]
    device = _PROVIDERS[found[0][0]]
    number = found[0][1].get("device_id", 0)
    names = [name for name, _ in found]
    if "CPUExecutionProvider" not in names:
        found.append(("CPUExecutionProvider", {}))
    return device if device == "cpu" else f"{device}:{number}", dict(found)


# ---- values

_TYPES = {
    "float16": "tensor(float16)", "bfloat16": "tensor(bfloat16)", "float32": "tensor(float)",
    "float64": "tensor(double)", "bool": "tensor(bool)", "complex64": "tensor(complex64)",
    "complex128": "tensor(complex128)",
    "float8_e4m3fn": "tensor(float8e4m3fn)", "float8_e4m3fnuz": "tensor(float8e4m3fnuz)",
    "float8_e5m2": "tensor(float8e5m2)", "float8_e5m2fnuz": "tensor(float8e5m2fnuz)",
    **{name: f"tensor({name})" for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
}  # fmt: skip
_ELEMENTS = dict(
    bool=9, float32=1, uint8=2, int8=3, uint16=4, int16=5, int32=6, int64=7, float16=10, float64=11, uint32=12,
    uint64=13, complex64=14, complex128=15, bfloat16=16, float8_e4m3fn=17, float8_e4m3fnuz=18, float8_e5m2=19,
    float8_e5m2fnuz=20,
)  # fmt: skip


class NodeArg:
    """An input or output of a model: its name, shape and type."""

    def __init__(self, name, value):
        self.name = name
        self.shape = [None if size == "?" else size for size in value.shape]
        self.type = _TYPES.get(value.dtype.name, f"tensor({value.dtype.name})")

    def __repr__(self):
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """Notes of a package; texts of ONNX models are not read, and empty."""

    def __init__(self, notes):
        self.producer_name = notes.get("producer", "")
        self.graph_name, self.domain = notes.get("graph", ""), notes.get("domain", "")
        self.description, self.graph_description = notes.get("description", ""), ""
        version = notes.get("version", "0")
        self.version = int(version) if version.isdigit() else 0
        self.custom_metadata_map = dict(notes)


def _numpy_of(x):
    """A NumPy array of the caller's own, which may be written."""
    return np.array(x)


def _dtype_name(caller, element_type):
    """The name of a type of NumPy's, or of a number of ONNX's."""
    if not isinstance(element_type, int):
        return np.dtype(element_type).name
    name = next((name for name, number in _ELEMENTS.items() if number == element_type), None)
    if name is None:
        raise ValueError(f"{caller}: element type {element_type}")
    return name


def _memory_at(caller, device_type, element_type, shape, address):
    """A NumPy array in the memory of an address, which the caller of the binding keeps."""
    if device_type != "cpu":
        _refuse(caller, f"of an address of {device_type}: use an OrtValue, as from OrtValue.from_dlpack")
    if element_type is None or shape is None:
        raise ValueError(f"{caller}: an address, expected its element_type and shape, too")
    name = _dtype_name(caller, element_type)
    try:
        dtype = np.dtype(name)
    except TypeError:
        _refuse(caller, f"of an address of {name}: use an OrtValue")
    shape = tuple(int(size) for size in shape)
    if min(shape, default=0) < 0 or (not address and 0 not in shape):
        raise ValueError(f"{caller}: {list(shape)} elements at the address {address}")
    count = int(np.prod(shape, dtype=np.int64))
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address or 1)
    return np.frombuffer(memory, dtype, count).reshape(shape)


class OrtValue:
    """A tensor on a device."""

    def __init__(self, array):
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj, device_type="cpu", device_id=0):
        """A copy of a NumPy array."""
        return cls(_arrays.array(np.asarray(numpy_obj), device=_value_device(device_type, device_id)))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data, onnx_element_type):
        """A copy of a NumPy array whose elements are those of an ONNX type."""
        name = next((name for name, number in _ELEMENTS.items() if number == onnx_element_type), None)
        if name is None or getattr(hr, name).itemsize != data.dtype.itemsize:
            raise ValueError(f"OrtValue: type {onnx_element_type} for elements of {data.dtype}, expected its size")
        array = _arrays.array(data)
        if array.dtype.name != name:
            _refuse("ortvalue_from_numpy_with_onnx_type", f"elements of {data.dtype} as {name}")
        return cls(array)

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape, element_type, device_type="cpu", device_id=0):
        """A tensor of zeros."""
        dtype = _dtype_name("ortvalue_from_shape_and_type", element_type)
        return cls(_arrays.zeros(tuple(shape), dtype=dtype, device=_value_device(device_type, device_id)))

    @classmethod
    def from_dlpack(cls, data, is_bool_tensor=False):
        """A tensor on another library's memory."""
        return cls(_arrays.from_dlpack(data))

    @staticmethod
    def ort_value_from_sparse_tensor(tensor):
        """Refused: tensors are dense."""
        _refuse("ort_value_from_sparse_tensor", "tensors are dense here")

    def numpy(self):
        """A copy as a NumPy array; waits."""
        return _numpy_of(self._array)

    def update_inplace(self, np_arr):
        """Replaces the elements; dims and dtype stay."""
        new = np.asarray(np_arr)
        if new.shape != self._array.shape or new.dtype.name != self._array.dtype.name:
            raise ValueError(
                f"update_inplace: {new.dtype.name}{list(new.shape)}, expected {self._array.dtype.name}"
                f"{list(self._array.shape)}"
            )
        self._array = _arrays.array(new, device=self._array.device)

    def data_ptr(self):
        """The address of the elements, which stays valid as long as this object; waits."""
        if not self._array.device.startswith("cpu"):
            _refuse("data_ptr", f"of memory of {self._array.device}: use from_dlpack of the other library")
        self._lent = np.asarray(self._array)
        return self._lent.ctypes.data

    def shape(self):
        """The sizes of the dims."""
        return list(self._array.shape)

    def data_type(self):
        """The type as a text."""
        return _TYPES.get(self._array.dtype.name, f"tensor({self._array.dtype.name})")

    def element_type(self):
        """The number of ONNX's element type."""
        return _ELEMENTS[self._array.dtype.name]

    def device_name(self):
        """cpu or cuda."""
        return self._array.device.split(":")[0]

    def tensor_size_in_bytes(self):
        """The bytes of all elements."""
        return self._array.nbytes

    def has_value(self):
        """True: a value is there."""
        return True

    def is_tensor(self):
        """True: sequences and maps are not supported."""
        return True

    def is_sparse_tensor(self):
        """False."""
        return False

    def is_tensor_sequence(self):
        """False."""
        return False

    def as_sparse_tensor(self):
        """Refused: tensors are dense."""
        _refuse("as_sparse_tensor", "tensors are dense here")

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def _value_device(device_type, device_id):
    if device_type not in ("cpu", "cuda", "gpu"):
        raise ValueError(f"OrtValue: device {device_type!r}, expected 'cpu' or 'cuda'")
    return f"{'cpu' if device_type == 'cpu' else 'cuda'}:{device_id}"


def _feed(value, device):
    """An input of a session; values on other devices than its own are copied, as ONNX Runtime does."""
    array = value._array if isinstance(value, OrtValue) else value
    return array.to_device(device) if isinstance(array, _arrays.Array) and array.device != device else array


# ---- inference


def _notes_of(source):
    """The notes of a package; none of an ONNX model."""
    if not isinstance(source, (str, os.PathLike)):
        return {}
    try:
        with _arrays.open_package(source) as package:
            return package.notes
    except ValueError:
        return {}


class InferenceSession:
    """A model that answers: a path or bytes of an ONNX model or of a package, or a headrace.Graph."""

    def __init__(
        self, path_or_bytes, sess_options=None, providers=None, provider_options=None, *, session_options=None, **kwargs
    ):
        self._options = sess_options or session_options or SessionOptions()
        if not isinstance(self._options, SessionOptions):
            raise TypeError(f"InferenceSession: options are {type(self._options).__name__}, expected SessionOptions")
        self._started = time.monotonic_ns()
        self._graph = self._load(path_or_bytes)
        self._notes = {} if isinstance(path_or_bytes, Graph) else _notes_of(path_or_bytes)
        given = providers if providers is not None else [name for name, _ in self._options._providers]
        self.set_providers(given or ["CPUExecutionProvider"], provider_options)

    def _load(self, source):
        options = self._options
        if isinstance(source, Graph):
            return source
        if options._dims or options._initializers:
            return _arrays.open_model(source, dims=options._dims, constants=options._initializers)
        return _arrays.open_model(source)

    def set_providers(self, providers=None, provider_options=None):
        """Makes the session again, for the device of the first provider that this machine has."""
        device, self._providers = _device_name(providers or ["CPUExecutionProvider"], provider_options)
        keeps = self._options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
        threads = max(0, self._options.intra_op_num_threads)
        self._session = Session(self._graph, device=device, simplify=not keeps, threads=threads)
        self._inputs = [NodeArg(name, value) for name, value in self._graph.inputs.items()]
        self._outputs = [NodeArg(name, value) for name, value in self._graph.outputs.items()]

    # -- runs

    def _arrays_of(self, output_names, input_feed, run_options=None):
        """The wanted outputs as arrays, which read the memory of NumPy arrays among the inputs when they run."""
        if run_options is not None and run_options.terminate:
            raise RuntimeError("InferenceSession: the run was terminated, as RunOptions.terminate is set")
        device = self._session.device
        feeds = {name: _feed(value, device) for name, value in input_feed.items()}
        return self._session.run(output_names or None, feeds, True)

    def run(self, output_names, input_feed, run_options=None):
        """The outputs with these names, all for None, as NumPy arrays; waits."""
        return [_numpy_of(x) for x in self._arrays_of(output_names, input_feed, run_options)]

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None):
        """The same on a thread: callback(results, user_data, error), error an empty text after success."""

        def work():
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, name="headrace-run", daemon=True).start()

    def run_with_ort_values(self, output_names, input_dict_ort_values, run_options=None):
        """The same with OrtValues for results, which stay on the device and need not be waited for."""
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise TypeError(f"run_with_ort_values: input {name!r} is {type(value).__name__}, expected OrtValue")
        return [OrtValue(x) for x in self._arrays_of(output_names, input_dict_ort_values, run_options)]

    def run_with_ortvaluevector(self, *arguments):
        """Refused: use run_with_ort_values."""
        _refuse("run_with_ortvaluevector", "use run_with_ort_values")

    def io_binding(self):
        """An object that holds inputs and outputs for several runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding, run_options=None):
        """Runs with the inputs and outputs of a binding."""
        iobinding._run(run_options)

    # -- what the model is

    def get_inputs(self):
        """The inputs as NodeArgs."""
        return list(self._inputs)

    def get_outputs(self):
        """The outputs as NodeArgs."""
        return list(self._outputs)

    def get_overridable_initializers(self):
        """None: initializers are constants."""
        return []

    def get_modelmeta(self):
        """The notes of a package."""
        return ModelMetadata(self._notes)

    def get_providers(self):
        """The providers in use."""
        return list(self._providers)

    def get_provider_options(self):
        """Their options by name."""
        return {name: dict(options) for name, options in self._providers.items()}

    def get_session_options(self):
        """The options that were given."""
        return self._options

    def enable_fallback(self):
        """Accepted: a session has one device."""

    def disable_fallback(self):
        """Accepted: a session has one device."""

    def get_profiling_start_time_ns(self):
        """When the session was made, by the monotonic clock."""
        return self._started

    def end_profiling(self):
        """Refused: HEADRACE_PROFILE and headrace.profiler write profiles."""
        _refuse("end_profiling", "profiles are written with HEADRACE_PROFILE: docs/performance.md")

    def create_ortvalue_from_shape_and_type(self, shape, element_type, *arguments):
        """A tensor of zeros on the session's device."""
        device = self._session.device.split(":")
        number = int(device[1]) if len(device) > 1 and device[0] == "cuda" else 0
        kind = "cuda" if device[0] == "cuda" else "cpu"
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, kind, number)

    def get_tuning_results(self):
        """None: results of tuning are in Headrace's cache."""
        return []

    def set_tuning_results(self, results, *, error_on_invalid=False):
        """Refused: results of tuning are in Headrace's cache."""
        _refuse("set_tuning_results", "results of tuning are in Headrace's cache")

    def release_captured_graph(self, *arguments):
        """Accepted: instances that were not used for long are dropped by themselves."""

    def set_ep_dynamic_options(self, options):
        """Refused: there are none."""
        _refuse("set_ep_dynamic_options", "there are no such options")

    def get_input_epdevices(self):
        """Refused: devices of plug-ins are not supported."""
        _refuse("get_input_epdevices", "devices of plug-ins are not supported")

    def get_input_memory_infos(self):
        """Refused: memory has one kind."""
        _refuse("get_input_memory_infos", "memory has one kind here")

    def get_output_memory_infos(self):
        """Refused: memory has one kind."""
        _refuse("get_output_memory_infos", "memory has one kind here")

    def get_provider_graph_assignment_info(self):
        """Refused: one device runs all operations."""
        _refuse("get_provider_graph_assignment_info", "one device runs all operations")


class IOBinding:
    """Inputs and outputs of a session for several runs. An output that is bound to an OrtValue replaces its tensor;
    one that is bound to an address is copied there by the run, which waits for it."""

    def __init__(self, session):
        self._session, self._inputs, self._outputs, self._results = session, {}, {}, []

    def _check(self, kind, name, names):
        if name not in names:
            raise ValueError(f"IOBinding: {kind} {name!r} is not known; expected {list(names)}")

    def bind_cpu_input(self, name, arr_on_cpu):
        """A copy of a NumPy array as an input."""
        self._check("input", name, self._session._session.inputs)
        self._inputs[name] = _arrays.array(np.asarray(arr_on_cpu), device=self._session._session.device)

    def bind_ortvalue_input(self, name, ortvalue):
        """A tensor as an input."""
        self._check("input", name, self._session._session.inputs)
        if not isinstance(ortvalue, OrtValue):
            raise TypeError(f"IOBinding: input {name!r} is {type(ortvalue).__name__}, expected OrtValue")
        self._inputs[name] = ortvalue

    def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
        """Memory of the host as an input: each run reads what is there then."""
        self._check("input", name, self._session._session.inputs)
        self._inputs[name] = _memory_at("bind_input", device_type, element_type, shape, buffer_ptr)

    def bind_output(
        self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None
    ):
        """An output, which the session makes, or which each run copies to memory of the host."""
        self._check("output", name, self._session._session.outputs)
        at_address = buffer_ptr is not None
        self._outputs[name] = (
            _memory_at("bind_output", device_type, element_type, shape, buffer_ptr) if at_address else None
        )

    def bind_ortvalue_output(self, name, ortvalue):
        """An output that becomes the value's tensor; its dims and dtype are checked."""
        self._check("output", name, self._session._session.outputs)
        if not isinstance(ortvalue, OrtValue):
            raise TypeError(f"IOBinding: output {name!r} is {type(ortvalue).__name__}, expected OrtValue")
        self._outputs[name] = ortvalue

    def synchronize_inputs(self):
        """Nothing is there to wait for: copies are made when inputs are bound."""

    def synchronize_outputs(self):
        """Waits for the outputs."""
        hr.eval(*self._results)

    def _run(self, run_options):
        names = list(self._outputs) or list(self._session._session.outputs)
        results = self._session._arrays_of(names, self._inputs, run_options)
        for name, x in zip(names, results):
            bound = self._outputs.get(name)
            if bound is None:
                continue
            place = bound if isinstance(bound, np.ndarray) else bound._array
            if tuple(place.shape) != tuple(x.shape) or place.dtype.name != x.dtype.name:
                raise ValueError(
                    f"IOBinding: output {name!r} is {x.dtype.name}{list(x.shape)}, its value "
                    f"{place.dtype.name}{list(place.shape)}"
                )
        for name, x in zip(names, results):
            bound = self._outputs.get(name)
            if isinstance(bound, np.ndarray):
                bound[...] = x
            elif bound is not None:
                bound._array = x
        self._results = results

    def get_outputs(self):
        """The outputs of the last run as OrtValues."""
        return [OrtValue(x) for x in self._results]

    def get_outputs_as_ortvaluevector(self):
        """The same as a list."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self):
        """The outputs of the last run as NumPy arrays; waits."""
        return [_numpy_of(x) for x in self._results]

    def clear_binding_inputs(self):
        """Binds no input."""
        self._inputs.clear()

    def clear_binding_outputs(self):
        """Binds no output."""
        self._outputs.clear()
        self._results = []


SessionIOBinding = IOBinding

# ---- the process


def get_version_string():
    """The version of ONNX Runtime whose interface this is."""
    return version


def get_build_info():
    """Headrace's name, in the place of ONNX Runtime's build."""
    return json.dumps({"library": "headrace", "interface": version})


def set_seed(seed):
    """Accepted: random operators of models have seeds of their own."""


def set_default_logger_severity(severity):
    """Accepted: HEADRACE_DEBUG selects messages."""


def set_default_logger_verbosity(verbosity):
    """Accepted: HEADRACE_DEBUG selects messages."""


def enable_telemetry_events():
    """Accepted: nothing is sent."""


def disable_telemetry_events():
    """Accepted: nothing is sent."""
