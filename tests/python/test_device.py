"""The PyTorch device as a device: registration, module functions, memory, views, copies, and errors that name the
cause."""

import os
import subprocess
import sys
import time

import numpy
import pytest
import torch
from support import DRIVER, IS_ACCELERATOR

D = "headrace"
pytestmark = pytest.mark.device_only


def on_device(tensor):
    return tensor.to(D)


@pytest.mark.skipif(torch.version.cuda is not None, reason="where torch drives CUDA, loading is explicit")
def test_device_needs_no_import():
    program = "import torch; x = torch.ones(3, device='headrace'); print((x + 1).sum().item(), x.device)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["6.0", "headrace:0"]


def test_explicit_import_works_first():
    program = "import headrace.torch, torch; print(torch.zeros(2, device='headrace').cpu().tolist())"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[0.0, 0.0]"


def test_module_functions():
    module = torch.headrace
    count = module.device_count()
    assert module.is_available() and count >= 1 and module.current_device() == 0
    assert not IS_ACCELERATOR or torch.accelerator.device_count() == count
    module.set_device(0)
    with pytest.raises(RuntimeError, match="there is 1 device, headrace:0|there are . devices"):
        module.set_device(count)
    with pytest.raises(RuntimeError, match=f"headrace:{count} was asked for"):
        torch.ones(1, device=f"headrace:{count}")
    with module.device(0):
        assert torch.ones(1, device=D).device == torch.device("headrace:0")
    assert not IS_ACCELERATOR or torch.accelerator.current_accelerator().type == "headrace"
    assert torch.ones(2).headrace().is_headrace
    assert torch.nn.Linear(2, 2).headrace().weight.device.type == D


def test_properties():
    properties = torch.headrace.get_device_properties(D)
    assert properties.kind == DRIVER
    assert properties.name == torch.headrace.get_device_name() != "" and f"name='{properties.name}'" in repr(properties)
    assert properties.multi_processor_count >= 1
    assert properties.total_memory == torch.headrace.mem_get_info()[1] > 0
    assert properties.is_host == (properties.kind != "cuda")
    with pytest.raises(ValueError, match="Expected a headrace device"):
        torch.headrace.get_device_properties("cpu")


@pytest.mark.parametrize(
    "name, count, message",
    [
        ("nul", 0, 'device "nul": no such driver; this build has cpu, cuda, null'),
        ("cpu:3", 0, 'driver "cpu" has 1 devices'),
        ("cpu:x", 1, "expected a number behind the colon"),
        ("null", 1, ""),
        ("null:0", 1, ""),
        ("cpu:0", 1, ""),
    ],
)
def test_names_of_devices(name, count, message):
    program = """if True:
        import headrace.torch, torch
        print(torch.headrace.device_count(), torch.headrace.is_available())
        for use in (lambda: torch.ones(3, device="headrace").sum().item(), torch.headrace.get_device_properties):
            try:
                print(use())
            except RuntimeError as error:
                print(error)
    """
    environment = os.environ | {"HEADRACE_DEVICE": name, "HEADRACE_CPU_DEVICES": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    counted, used, described = done.stdout.splitlines()
    assert counted == f"{count} {count > 0}", done
    if message:
        assert message in used and message in described
    else:
        assert used == ("3.0" if name == "cpu:0" else "0.0") and f"kind='{name.split(':')[0]}'" in described


def test_default_device():
    with torch.device(D):
        assert torch.randn(3).device.type == D and torch.arange(4).device.type == D


def test_stats_count_operations_and_commits():
    x = on_device(torch.ones(8))
    torch.headrace.synchronize()
    torch.headrace.reset_stats()
    y = x * 2 + 1
    assert torch.headrace.stats()["operations"] == 2 and torch.headrace.stats()["commits"] == 0
    assert y.sum().item() == 24
    assert torch.headrace.stats()["commits"] == 1 and torch.headrace.stats()["commits_by_read"] == 1


@pytest.mark.parametrize("mode", ["strict", "eager", "fuse"])
def test_modes(mode):
    torch.headrace.set_mode(mode)
    assert torch.headrace.get_mode() == mode
    assert on_device(torch.ones(5)).mul(3).sum().item() == 15


def test_memory_functions():
    x = torch.ones(1 << 20, device=D)
    torch.headrace.synchronize()
    assert torch.headrace.memory_allocated() >= 4 << 20
    assert torch.headrace.max_memory_allocated() >= torch.headrace.memory_allocated()
    assert not IS_ACCELERATOR or torch.accelerator.memory_allocated() == torch.headrace.memory_allocated()
    free, total = torch.headrace.mem_get_info()
    assert 0 < free <= total
    del x
    torch.headrace.synchronize()
    torch.headrace.empty_cache()


def test_streams():
    module = torch.headrace
    assert module.current_stream() == module.default_stream()
    stream = module.Stream()
    with module.stream(stream):
        assert module.current_stream() == stream != module.default_stream()
        y = torch.ones(4, device=D) + 1
    assert module.current_stream() == module.default_stream()
    with module.stream(None):
        assert module.current_stream() == module.default_stream()
    stream.synchronize()
    assert y.sum().item() == 8


@pytest.mark.skipif(not IS_ACCELERATOR, reason="torch.accelerator is another device")
def test_streams_and_events_of_torch():
    stream = torch.Stream(D)
    with stream:
        y = torch.ones(4, device=D) + 1
    event = stream.record_event()
    event.synchronize()
    assert event.query() and y.sum().item() == 8
    start, end = torch.Event(D, enable_timing=True), torch.Event(D, enable_timing=True)
    start.record()
    torch.ones(1000, device=D).exp().sum()
    end.record()
    assert start.elapsed_time(end) >= 0
    torch.headrace.current_stream().synchronize()


@pytest.mark.skipif(not IS_ACCELERATOR, reason="torch.accelerator is another device")
def test_the_cache_of_pinned_memory_can_be_emptied():
    pinned = torch.ones(5).pin_memory()
    torch.accelerator.empty_host_cache()
    assert pinned.is_pinned() and pinned.sum().item() == 5


def test_events_give_milliseconds():
    start, end = torch.headrace.Event(enable_timing=True), torch.headrace.Event(enable_timing=True)
    x = torch.ones(1 << 16, device=D)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    began = time.perf_counter()
    start.record()
    for _ in range(50):
        x = x.exp().log()
    end.record()
    end.synchronize()
    took = (time.perf_counter() - began) * 1e3
    assert start.query() and end.query()
    assert 0 < start.elapsed_time(end) <= took + 1
    assert end.elapsed_time(start) == -start.elapsed_time(end)
    untimed = torch.headrace.Event()
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(untimed)
    with pytest.raises((RuntimeError, TypeError), match="torch.Event"):
        start.elapsed_time(1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        torch.headrace.Event(timing=True)


def test_events_of_both_names_are_one_kind():
    kinds = (torch.headrace.Event, lambda **names: torch.Event(D, **names))
    for first in kinds:
        for second in kinds:
            start, end = first(enable_timing=True), second(enable_timing=True)
            start.record()
            x = on_device(torch.ones(100)) + 1
            end.record(torch.headrace.current_stream())
            end.synchronize()
            assert start.elapsed_time(end) >= 0 and x.sum().item() == 200
            assert type(start) is torch.Event and isinstance(start, torch.headrace.Event)
            assert start.device.type == D
    assert not isinstance(torch.Event("cpu") if IS_ACCELERATOR else 1, torch.headrace.Event)
    event = torch.headrace.current_stream().record_event()
    event.wait()
    event.synchronize()
    assert event.query() and isinstance(event, torch.headrace.Event)


def test_a_timed_event_does_not_wait_for_work():
    x = torch.rand(1500, 1500, device=D)
    torch.headrace.synchronize()
    began = time.perf_counter()
    (x @ x).sum().item()
    product = time.perf_counter() - began
    events = [torch.headrace.Event(enable_timing=True) for _ in range(12)]
    began = time.perf_counter()
    for event in events:  # more than the queue's usual limit of programs
        x = x @ x / 1500
        event.record()
    took = time.perf_counter() - began
    assert DRIVER != "cpu" or not events[-1].query()
    events[-1].synchronize()
    times = [events[0].elapsed_time(event) for event in events]
    assert times == sorted(times) and times[-1] > 0
    assert took < 8 * product


def wait_for(query):
    deadline = time.monotonic() + 60
    while not query():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("timed", [False, True])
def test_queries_do_not_wait(timed):
    x = torch.rand(1500, 1500, device=D)
    torch.headrace.synchronize()
    began = time.perf_counter()
    (x @ x).sum().item()
    product = time.perf_counter() - began
    event = torch.headrace.Event(enable_timing=timed)
    y = x
    for _ in range(10):
        y = y @ x / 1500
    event.record()
    began = time.perf_counter()
    done = event.query()
    took = time.perf_counter() - began
    assert not done or DRIVER != "cpu"
    assert took < 5 * product  # ten products were in front of it
    wait_for(event.query)
    wait_for(torch.headrace.current_stream().query)
    assert y.isfinite().all().item()

@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ],
)
def test_values_travel_there_and_back(dtype):
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for view in (x, x.transpose(0, 2), x[:, 1:, ::2], x.to(memory_format=torch.contiguous_format).unsqueeze(0)):
        assert torch.equal(view.to(D).cpu(), view)
        assert view.to(D).stride() == view.to("cpu", copy=True).stride()


def test_host_source_may_change_after_the_copy():
    x = torch.ones(4)
    y = x.to(D)
    x.fill_(7)
    assert y.cpu().tolist() == [1, 1, 1, 1]


def test_copies_convert_and_broadcast():
    x = torch.zeros(2, 3, device=D)
    x.copy_(torch.tensor([1, 2, 3]))
    assert x.cpu().tolist() == [[1, 2, 3], [1, 2, 3]]
    host = torch.zeros(2, 3, dtype=torch.int32)
    host.copy_(on_device(torch.tensor([1.9, -2.9, 3.0])))
    assert host.tolist() == [[1, -2, 3], [1, -2, 3]]


def test_conjugate_and_negative_views():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(on_device(z).conj().cpu(), z.conj())
    assert torch.equal(on_device(z).conj().imag.cpu(), z.conj().imag)
    y = torch.zeros(2, dtype=torch.complex64, device=D)
    y.conj().copy_(on_device(z))
    assert torch.equal(y.cpu(), z.conj().resolve_conj())


def test_views_share_memory():
    x = torch.zeros(4, 6, device=D)
    x[1:3, ::2] = 5
    x.t()[0] += 1
    x.view(2, 12)[1, -1] = 9
    expected = torch.zeros(4, 6)
    expected[1:3, ::2] = 5
    expected.t()[0] += 1
    expected.view(2, 12)[1, -1] = 9
    assert torch.equal(x.cpu(), expected)
    assert x[1].data_ptr() - x.data_ptr() == 24


def test_resize_keeps_values():
    x = on_device(torch.arange(6.0))
    x.resize_(2, 4)
    assert x.shape == (2, 4) and x.cpu().flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_set_and_storages():
    x, y = on_device(torch.arange(6.0)), torch.empty(0, device=D)
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.cpu().tolist() == [[1, 2], [3, 4]]
    y.zero_()
    assert x.cpu().tolist() == [0, 0, 0, 0, 0, 5]
    assert y.is_set_to(y) and not y.is_set_to(x)


def test_data_assignment_and_swap():
    parameter = torch.nn.Parameter(torch.ones(3, device=D))
    parameter.data = torch.zeros(2, device=D)
    assert parameter.shape == (2,)


def test_printing():
    x = on_device(torch.tensor([1.5, 2.0]))
    assert repr(x) == "tensor([1.5000, 2.0000], device='headrace:0')"
    assert "device='headrace:0'" in repr(torch.nn.Parameter(x)) and "requires_grad" in repr(torch.nn.Parameter(x))
    assert "size=(0, 3)" in repr(torch.empty(0, 3, device=D))


def test_no_address_leaves():
    x = torch.ones(2, device=D)
    with pytest.raises(TypeError, match="copy the tensor to host memory|can't convert"):
        x.numpy()


def test_pinned_memory():
    x = torch.ones(5).pin_memory()
    assert x.is_pinned() and torch.equal(x.to(D, non_blocking=True).cpu(), x)


def test_wrong_devices_shapes_and_types():
    x = torch.ones(2, 3, device=D)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, 3).add_(x)
    with pytest.raises(RuntimeError, match="size of tensor a"):
        x + torch.ones(2, 4, device=D)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(5)
    with pytest.raises(RuntimeError, match="bool"):
        torch.ones(2, dtype=torch.bool, device=D) - torch.ones(2, dtype=torch.bool, device=D)


def test_index_out_of_range_leaves_the_rest():
    x = torch.ones(3, device=D)
    y = x + 1
    with pytest.raises(IndexError):
        torch.nn.functional.embedding(torch.tensor([7], device=D), torch.ones(3, 2, device=D)).cpu()
    assert (x + 1).sum().item() == 6 and y.sum().item() == 6


def test_out_of_memory():
    x = torch.ones(4, device=D)
    torch.headrace.synchronize()
    torch.headrace.set_memory_limit(64 << 20)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            kept = torch.ones(1 << 28, device=D).add(1)
            kept.sum().item()
    finally:
        torch.headrace.set_memory_limit(0)
    assert x.sum().item() == 4


@pytest.mark.cpu_only
def test_a_second_process_with_a_warm_disk_cache_compiles_nothing(tmp_path):
    """The second process takes as many steps as it needs to load all that the first one has compiled."""
    program = """if True:
        import sys, time, headrace.torch, torch
        wanted, begin = int(sys.argv[1]), time.monotonic()
        x, y = torch.rand(2, 1 << 21).to("headrace")
        while time.monotonic() - begin < 60:
            a = ((x + y) * 0.5).tanh()
            b = torch.softmax(x.view(1024, 2048), 1).sum(0)
            torch.headrace.synchronize()
            stats = torch.headrace.stats()
            if stats["jit_compiled"] + stats["jit_loaded"] >= wanted:
                break
        print(stats["jit_compiled"], stats["jit_loaded"])
    """
    environment = os.environ | {"HEADRACE_CACHE": str(tmp_path / "cache")}
    runs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program, "2"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        runs.append(tuple(map(int, done.stdout.split())))
    (compiled, loaded), (compiled_again, loaded_again) = runs
    assert compiled >= 2 and loaded == 0
    assert compiled_again == 0 and loaded_again >= 2


@pytest.mark.device_only
def test_synchronize_takes_a_device_and_raises_what_failed(device):
    for arguments, names in (((), {}), ((None,), {}), ((0,), {}), ((), {"device": device})):
        x = torch.arange(4).to(device)
        x[torch.tensor([9]).to(device)]
        with pytest.raises(IndexError, match="index 9 is out of bounds for dimension with size 4"):
            torch.headrace.synchronize(*arguments, **names)
        assert torch.headrace.synchronize(*arguments, **names) is None
    for wrong, error in (({"device": "cpu"}, ValueError), ({"devices": 0}, TypeError)):
        with pytest.raises(error):
            torch.headrace.synchronize(**wrong)


def test_capability_lists_the_dtypes_that_work():
    """Each dtype that the device lists holds and converts numbers; each other raises."""
    listed = torch.accelerator.get_device_capability(D)["supported_dtypes"] if IS_ACCELERATOR else None
    if listed is None:
        pytest.skip("torch's accelerator is another device")
    assert {torch.float32, torch.float16, torch.bool, torch.uint64, torch.complex32, torch.float8_e5m2} <= listed
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert torch.quint8 in dtypes - listed
    for dtype in dtypes:
        if dtype in listed:
            assert torch.ones(4, device=D).to(dtype).float().cpu().tolist() == [1.0] * 4
        else:
            with pytest.raises((RuntimeError, TypeError)):
                torch.empty(4, dtype=dtype, device=D).float()


def test_metadata_is_kept(tmp_path):
    """Named flags of a backend (torch._utils.set_tensor_metadata) go along with a tensor, and not to another device."""
    get, flags = torch._utils.get_tensor_metadata, {"packed": True, "signed": False}
    x = torch.arange(4.0, device=D)
    assert get(x) == {}
    torch._utils.set_tensor_metadata(x, flags)
    assert get(x) == get(x.detach()) == flags and get(x + 1) == get(x.cpu()) == {}
    torch.save(x, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt")
    assert get(loaded) == flags and loaded.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert get(torch.load(tmp_path / "x.pt", map_location="cpu")) == {}
    torch._utils.set_tensor_metadata(x, {})
    assert get(x) == {} and get(loaded) == flags


def test_metadata_stands_beside_torchs_own(tmp_path):
    z = torch.tensor([1 + 2j], device=D).conj()
    torch._utils.set_tensor_metadata(z, {"packed": True, "conj": True})
    torch.save(z, tmp_path / "z.pt")
    loaded = torch.load(tmp_path / "z.pt")
    assert torch._utils.get_tensor_metadata(loaded) == {"packed": True, "conj": True}
    assert loaded.cpu().tolist() == [1 - 2j]


def test_autocast_names_its_dtypes():
    expected = r"only supports dtypes of torch.float16, torch.bfloat16"
    with pytest.warns(UserWarning, match=expected), torch.autocast(D, dtype=torch.float64):
        pass
