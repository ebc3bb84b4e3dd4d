"""Two devices of one driver: headrace:0 and headrace:1.

Most machines have one. There the whole file runs again in a process of its own, with the CPU as two devices, each
with its own queue and memory.
"""

import copy
import io
import os
import subprocess
import sys
import threading

import pytest
import torch
from support import DEVICE, IS_ACCELERATOR

pytestmark = pytest.mark.device_only

SEVERAL = DEVICE.type == "headrace" and torch.headrace.device_count() > 1
two_devices = pytest.mark.skipif(not SEVERAL, reason="one device; they run in test_two_cpu_devices")
FIRST, SECOND = torch.device("headrace:0"), torch.device("headrace:1")


@pytest.fixture(autouse=True)
def first_device():
    yield
    if DEVICE.type == "headrace":
        torch.headrace.set_device(0)


@pytest.mark.skipif(SEVERAL, reason="there are several devices")
def test_two_cpu_devices():
    environment = os.environ | {"HEADRACE_DEVICE": "cpu", "HEADRACE_CPU_DEVICES": "2"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@two_devices
def test_the_current_device_is_chosen_by_each_thread():
    module = torch.headrace
    assert module.current_device() == 0
    assert not IS_ACCELERATOR or torch.accelerator.current_device_index() == 0
    with module.device(1):
        assert module.current_device() == 1 and torch.ones(2, device="headrace").device == SECOND
        assert torch.ones(2).to("headrace").device == SECOND and torch.ones(2).headrace().device == SECOND
        with module.device("headrace:0"):
            assert torch.randn(2, device="headrace").device == FIRST
        with module.device(None), module.device(-1), module.device("headrace"):
            assert module.current_device() == 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(module.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
    assert module.current_device() == 0
    module.set_device(SECOND)
    assert torch.empty(2, device="headrace").device == SECOND
    with module.device_of(torch.ones(1, device=FIRST)):
        assert module.current_device() == 0
    with pytest.raises(RuntimeError, match=f"there are {module.device_count()} devices"):
        module.set_device(module.device_count())
    assert module.current_device() == 1


@two_devices
def test_results_are_where_the_operands_are():
    for current in (0, 1):
        with torch.headrace.device(current):
            for place in (FIRST, SECOND):
                x = torch.arange(6.0, device=place).view(2, 3)
                y = torch.linspace(0, 1, 6).view(2, 3).to(place)
                results = [x + y, x.exp(), x.sum(1), x @ y.t(), x.clone(), x[1:].contiguous(), torch.cat([x, y])]
                results += [torch.zeros_like(x), x.new_ones(3), x.half(), x[1], torch.where(x > 1, x, y)]
                results += [x.max(1).values, torch.randn_like(x).mul(0), x.cumsum(0)]
                results += torch._foreach_mul([x, y], 2.0)
                host = [x.cpu(), y.cpu()]
                assert all(result.device == place for result in results)
                assert torch.equal(results[0].cpu(), host[0] + host[1])
                torch.testing.assert_close(results[3].cpu(), host[0] @ host[1].t())
                assert torch.equal(results[6].cpu(), torch.cat(host))
                assert x[1, 2].item() == 5 and torch.equal(x, x.clone())
                assert torch.headrace.current_device() == current


@two_devices
def test_copies_between_devices():
    x = torch.arange(24.0, device=FIRST).view(2, 3, 4)
    views = (x, x.transpose(0, 2), x[:, 1:, ::2], x[0, 0, 0], x[:0], x.half(), x > 3)
    for view in views:
        for there in (view.to(SECOND), torch.empty_like(view, device=SECOND).copy_(view)):
            assert there.device == SECOND and there.dtype == view.dtype
            assert torch.equal(there.cpu(), view.cpu()) and torch.equal(there.to(FIRST).cpu(), view.cpu())
    y = torch.zeros(2, 3, 4, dtype=torch.float64, device=SECOND)
    assert torch.equal(y.copy_(x[:, :1]).cpu(), x[:, :1].cpu().expand(2, 3, 4).double())
    z = torch.tensor([1 + 2j, -3j], device=FIRST)
    assert torch.equal(z.conj().to(SECOND).cpu(), z.conj().cpu().resolve_conj())
    x.add_(1)  # pending work of the source is in the copy, later work is not
    there = x.to(SECOND)
    x.mul_(0)
    assert there.sum().item() == 300 and x.sum().item() == 0
    assert x.to(FIRST) is x
    into = torch.zeros(2, 2, dtype=torch.complex64, device=SECOND)
    into[:, 1].conj().copy_(z)  # written elements of another tensor, conjugated
    assert torch.equal(into.cpu(), torch.tensor([[0, 1 - 2j], [0, 3j]]))
    images = torch.randn(2, 3, 4, 5).to(FIRST, memory_format=torch.channels_last)
    before = torch.headrace.stats(0)["bytes_copied_out"], torch.headrace.stats(1)["bytes_copied_in"]
    there = images.to(SECOND)
    assert before == (torch.headrace.stats(0)["bytes_copied_out"], torch.headrace.stats(1)["bytes_copied_in"])
    assert there.stride() == images.stride() and torch.equal(there.cpu(), images.cpu())


@two_devices
@pytest.mark.parametrize(
    "use",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        lambda a, b: a @ b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: torch.exp(a, out=b),
        lambda a, b: torch.nn.functional.linear(a, b),
        lambda a, b: torch.nn.functional.linear(a, a, b[0]),
        lambda a, b: torch._foreach_add([a, a], [b, b]),
        lambda a, b: a + b[0, 0],
    ],
)
def test_operands_of_two_devices_are_refused(use):
    a, b = torch.ones(3, 3, device=FIRST), torch.ones(3, 3, device=SECOND)
    for left, right in ((a, b), (b, a)):
        with pytest.raises(RuntimeError, match="same device|Expected out tensor to have device"):
            use(left, right)
    assert a.sum().item() == b.sum().item() == 9


@two_devices
def test_each_device_has_its_counters_memory_and_queue():
    module = torch.headrace
    for index in (0, 1):
        module.synchronize(index)
        module.reset_stats(index)
    before = [module.memory_allocated(index) for index in (0, 1)]
    x = torch.ones(1 << 20, device=SECOND) + 1
    assert module.stats(1)["operations"] == 2 and module.stats(0)["operations"] == 0
    module.synchronize(SECOND)
    assert module.memory_allocated(1) - before[1] >= 4 << 20 and module.memory_allocated(0) == before[0]
    assert (
        not IS_ACCELERATOR
        or torch.accelerator.memory_allocated(1) == module.memory_stats("headrace:1")["allocated_bytes"]
    )
    assert module.mem_get_info(1)[1] == module.get_device_properties(1).total_memory > 0
    assert module.get_device_properties(1).ordinal == 1 and x.sum().item() == 2 << 20
    stream = torch.headrace.Stream(1)
    assert stream.device == SECOND and module.current_stream(1).device == SECOND
    with module.stream(stream):
        assert module.current_device() == 1 and module.current_stream() == stream
    assert module.current_device() == 0 and module.current_stream(1) == module.default_stream(1)
    event = stream.record_event()
    event.synchronize()
    assert event.query()


@two_devices
def test_random_numbers_of_each_device():
    torch.manual_seed(7)
    first, second = (torch.rand(4, device=place).cpu() for place in (FIRST, SECOND))
    assert torch.equal(first, second), "one seed for all, as on CUDA"
    state = torch.headrace.get_rng_state(1)
    after = torch.rand(4, device=SECOND).cpu()
    torch.rand(4, device=FIRST)
    torch.headrace.set_rng_state(state, 1)
    assert torch.equal(torch.rand(4, device=SECOND).cpu(), after)
    generator = torch.Generator(SECOND).manual_seed(1)
    assert generator.device == SECOND and torch.rand(2, device=SECOND, generator=generator).device == SECOND
    assert len(torch.headrace.get_rng_state_all()) == torch.headrace.device_count()


@two_devices
def test_a_network_on_two_devices_trains_like_one_on_the_host():
    torch.manual_seed(1)
    start = torch.nn.ModuleList([torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)])
    x, target = torch.randn(8, 6), torch.arange(8) % 3
    losses = []
    for places in (("cpu", "cpu"), (FIRST, SECOND), (SECOND, SECOND)):
        parts = copy.deepcopy(start)
        parts[0].to(places[0])
        parts[1].to(places[1])
        optimizer = torch.optim.Adam(parts.parameters(), lr=0.05)
        steps = []
        for _ in range(6):
            optimizer.zero_grad()
            hidden = torch.relu(parts[0](x.to(places[0]))).to(places[1])
            loss = torch.nn.functional.cross_entropy(parts[1](hidden), target.to(places[1]))
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        assert parts[0].weight.grad.device == parts[0].weight.device == torch.device(places[0])
        losses.append(steps)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and losses[2] == pytest.approx(losses[0], rel=1e-4)


@two_devices
def test_compiled_graphs_of_each_device():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x = torch.randn(5, 4)
    for place in (SECOND, FIRST, SECOND):
        there = copy.deepcopy(model).to(place)
        compiled = torch.compile(there, backend="headrace")
        for _ in range(3):
            y = compiled(x.to(place))
            y.square().sum().backward()
        assert y.device == place
        torch.testing.assert_close(y.detach().cpu(), model(x).detach())
        expected = torch.autograd.grad(model(x).square().sum(), model[0].weight)[0] * 3
        torch.testing.assert_close(there[0].weight.grad.cpu(), expected, rtol=1e-4, atol=1e-5)


@two_devices
def test_files_and_storages_keep_the_device():
    x = torch.arange(4.0, device=SECOND)
    file = io.BytesIO()
    torch.save(x, file)
    for place, expected in ((None, SECOND), ("headrace:0", FIRST), ("cpu", torch.device("cpu"))):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert loaded.device == expected and loaded.tolist() == [0, 1, 2, 3]
    assert copy.deepcopy(x).device == SECOND and x.untyped_storage().clone().device == SECOND
    assert x.resize_(6).device == SECOND and x[:4].tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(64)
    assert x[:4].tolist() == [0, 1, 2, 3]


@two_devices
def test_what_runs_on_the_host_comes_back_to_its_device():
    torch.headrace.set_fallback("allow")
    values, order = torch.sort(torch.tensor([3.0, 1.0, 2.0], device=SECOND))
    assert values.device == order.device == SECOND and values.tolist() == [1, 2, 3]
    assert torch.headrace.get_mode() == "fuse"
    torch.headrace.set_mode("eager")
    with torch.headrace.device(1):
        assert torch.headrace.get_mode() == "eager"


@two_devices
def test_events_of_two_devices_have_no_time_between_them():
    events = [torch.headrace.Event(enable_timing=True) for _ in range(2)]
    for index, event in enumerate(events):
        with torch.headrace.device(index):
            event.record()
            event.synchronize()
    with pytest.raises(ValueError, match="of headrace:1 and headrace:0, expected one device"):
        events[1].elapsed_time(events[0])
