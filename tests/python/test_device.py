"""The PyTorch device as a device: registration, module functions, allocation, views, copies, files, processes, random
numbers, type promotion, out= and in-place rules, errors, fallback. What operators compute is compared elsewhere.
"""

import copy
import io
import itertools
import os
import pickle
import subprocess
import sys
import threading

import numpy
import pytest
import torch
from support import IS_ACCELERATOR

D = "headrace"


@pytest.fixture(autouse=True)
def default_settings():
    yield
    torch.headrace.set_fallback("error")
    torch.headrace.set_mode("fuse")


def on_device(tensor):
    return tensor.to(D)


# ---- registration and the module


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
    assert properties.kind == (os.environ.get("HEADRACE_DEVICE") or "cpu").split(":")[0]
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


# ---- tensors


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
    with pytest.raises(BufferError, match="DLPack"):
        torch.utils.dlpack.to_dlpack(x)
    with pytest.raises(BufferError, match="DLPack"):
        numpy.from_dlpack(x)


def test_pinned_memory():
    x = torch.ones(5).pin_memory()
    assert x.is_pinned() and torch.equal(x.to(D, non_blocking=True).cpu(), x)


# ---- files and processes


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ).to(D)


def test_state_dict_to_and_from_files(tmp_path):
    model, path = make_model(), tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    for place in (None, "cpu", D):
        state = torch.load(path, map_location=place)
        assert state["0.weight"].device.type == (place or D)
        assert torch.equal(state["0.weight"].cpu(), model[0].weight.detach().cpu())
    other = make_model()
    other.load_state_dict(torch.load(path))
    x = torch.randn(5, 4).to(D)
    assert torch.equal(model(x).cpu(), other(x).cpu())


def test_host_file_loads_onto_the_device(tmp_path):
    torch.save({"x": torch.arange(3)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location=D)["x"].device.type == D


@pytest.mark.parametrize("new_format", [True, False])
def test_save_formats_keep_sharing(new_format):
    x = on_device(torch.arange(6.0))
    file = io.BytesIO()
    torch.save([x, x[2:4]], file, _use_new_zipfile_serialization=new_format)
    file.seek(0)
    whole, part = torch.load(file)
    part += 1
    assert whole.cpu().tolist() == [0, 1, 3, 4, 4, 5]


def test_moving_a_module_keeps_its_parameters():
    """Tied weights stay one parameter; an optimizer that was made before the move trains what moved."""
    losses = []
    for device in ("cpu", D):
        torch.manual_seed(5)
        table, head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20, bias=False)
        head.weight = table.weight
        model = torch.nn.Sequential(table, torch.nn.Tanh(), head)
        x = torch.arange(12)
        model(x).sum().backward()  # gradients move as well, and a later backward finds where they are now
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weight, before = table.weight, table.weight.grad.clone()
        model.to(device)
        assert model[0].weight is weight and model[2].weight is weight and len(list(model.parameters())) == 1
        assert weight.device.type == device and weight.is_leaf and weight.grad.device.type == device
        torch.testing.assert_close(weight.grad.cpu(), before, rtol=0, atol=0)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), (x + 1).to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        model.cpu()
        assert model[2].weight is weight and weight.device.type == "cpu" and weight.grad.device.type == "cpu"
        losses.append(weight.detach().double().sum().item())
        assert model.to("meta")[0].weight.is_meta
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-4)


def test_pickle_and_deepcopy():
    x = on_device(torch.arange(4.0))
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
    model = make_model()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.abs().sum().item() > 0 and twin[0].weight.device.type == D


class DeviceDataset(torch.utils.data.Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_over_host_data(workers, pin):
    torch.ones(1, device=D).item()  # the device is open before workers fork
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2))
    total = sum(
        batch[0].to(D).sum().item()
        for batch in torch.utils.data.DataLoader(data, 3, num_workers=workers, pin_memory=pin)
    )
    assert total == 190


def test_forked_child_is_told():
    torch.ones(1, device=D).item()
    loader = torch.utils.data.DataLoader(DeviceDataset(torch.arange(4.0).to(D)), num_workers=1)
    with pytest.raises(RuntimeError, match="forked subprocess"):
        list(loader)


# ---- random numbers


def test_seeds_repeat():
    torch.manual_seed(11)
    first = [torch.randn(5, device=D).cpu(), torch.rand(5, device=D).cpu(), torch.randint(9, (5,), device=D).cpu()]
    torch.manual_seed(11)
    again = [torch.randn(5, device=D).cpu(), torch.rand(5, device=D).cpu(), torch.randint(9, (5,), device=D).cpu()]
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert torch.headrace.initial_seed() == 11


def test_rng_state_and_fork():
    state = torch.headrace.get_rng_state()
    x = torch.rand(4, device=D).cpu()
    torch.headrace.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=D).cpu(), x)
    torch.headrace.set_rng_state(state)
    with torch.random.fork_rng(device_type=D):
        torch.rand(4, device=D)
    assert torch.equal(torch.rand(4, device=D).cpu(), x)


def test_generators():
    g = torch.Generator(D).manual_seed(5)
    x = torch.rand(3, generator=g, device=D)
    saved = g.get_state()
    y = torch.rand(3, generator=g, device=D)
    g.set_state(saved)
    assert torch.equal(y.cpu(), torch.rand(3, generator=g, device=D).cpu()) and not torch.equal(x.cpu(), y.cpu())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, generator=torch.Generator(), device=D)


def test_random_fills_have_their_moments():
    torch.manual_seed(0)
    n = 40000
    assert abs(torch.rand(n, device=D).mean().item() - 0.5) < 0.01
    normal = torch.randn(n, device=D).mul(2).add(1)
    assert abs(normal.mean().item() - 1) < 0.05 and abs(normal.std().item() - 2) < 0.05
    assert abs(torch.empty(n, device=D).bernoulli_(0.3).mean().item() - 0.3) < 0.02
    assert abs(torch.empty(n, device=D).exponential_(2).mean().item() - 0.5) < 0.02
    dropped = torch.nn.functional.dropout(torch.ones(n, device=D), 0.25)
    assert abs(dropped.mean().item() - 1) < 0.02
    torch.testing.assert_close(dropped.cpu().unique(), torch.tensor([0, 4 / 3]))


# ---- promotion, out=, in place

NUMBERS = [True, 2, 1.5, 1 + 1j]
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def same(device_result, expected):
    assert device_result.dtype == expected.dtype and device_result.shape == expected.shape
    torch.testing.assert_close(device_result.cpu(), expected)


@pytest.mark.parametrize("op", [torch.add, torch.mul, torch.true_divide, torch.eq])
def test_promotion_of_tensors_and_numbers(op):
    for a, b in itertools.product(DTYPES, DTYPES):
        if {a, b} == {torch.float16, torch.complex64}:
            continue  # torch's half complex numbers have no dtype here
        x, y = torch.ones(3).to(a), torch.ones(3).to(b)
        same(op(x.to(D), y.to(D)), op(x, y))
        same(op(x.to(D), y[0].to(D)), op(x, y[0]))
        same(op(x.to(D), y[0]), op(x, y[0]))  # a host tensor without dims is a number
    for a, number in itertools.product(DTYPES, NUMBERS):
        if a == torch.float16 and isinstance(number, complex):
            continue
        x = torch.ones(3).to(a)
        same(op(x.to(D), number), op(x, number))
        same(op(x[0].to(D), number), op(x[0], number))


def test_broadcast_and_strides_of_results():
    x, y = torch.randn(2, 3, 4).transpose(0, 2), torch.randn(3, 1).expand(4, 3, 2)
    result = x.to(D) + y.to(D)
    assert result.stride() == (x + y).stride()
    same(result, x + y)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.relu(image.to(D)).is_contiguous(memory_format=torch.channels_last)


def test_out_is_resized_and_cast():
    x = on_device(torch.tensor([1.0, 2.0]))
    out = torch.empty(0, device=D)
    assert torch.add(x, 1, out=out) is out and out.cpu().tolist() == [2, 3]
    wide = torch.empty(2, dtype=torch.float64, device=D)
    torch.exp(x, out=wide)
    torch.testing.assert_close(wide.cpu(), torch.exp(x.cpu()).double())
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.exp(x, out=torch.empty(2, dtype=torch.int64, device=D))
    with pytest.raises(RuntimeError, match="device"):
        torch.add(x, 1, out=torch.empty(2))
    product = torch.empty(0, device=D)
    torch.mm(torch.ones(2, 3, device=D), torch.ones(3, 4, device=D), out=product)
    assert product.shape == (2, 4) and product.sum().item() == 24


def test_out_may_overlap_inputs_of_products():
    x = on_device(torch.randn(3, 3))
    expected = x.cpu() @ x.cpu()
    torch.mm(x, x, out=x)
    torch.testing.assert_close(x.cpu(), expected)


def test_overlap_is_refused():
    x = torch.ones(4, device=D)
    with pytest.raises(RuntimeError, match="memory"):
        x.expand(2, 4).add_(1)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x[:3], 1, out=x[1:])
    spread = torch.tensor([1.0, 2.0], device=D).expand(2, 2)
    assert spread.copy_(spread[0:2]).cpu().tolist() == [[1, 2], [1, 2]]  # a copy of itself is none
    with pytest.raises(RuntimeError, match="memory"):
        spread.copy_(torch.zeros(2, 2, device=D))


def test_in_place_rules():
    x = torch.ones(3, dtype=torch.int64, device=D)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3, device=D).add_(torch.ones(2, 3, device=D))
    half = torch.ones(3, dtype=torch.float16, device=D)
    half.add_(torch.full((3,), 0.5, device=D))
    assert half.dtype == torch.float16 and half.cpu().tolist() == [1.5] * 3


# ---- errors


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
            torch.ones(1 << 28, device=D).add(1).sum().item()
    finally:
        torch.headrace.set_memory_limit(0)
    assert x.sum().item() == 4


# ---- fallback


@pytest.fixture(scope="module")
def host_operators():
    """Operators that no device but the CPU will ever have: twice(x), and ordered(x, out=)."""
    library = torch.library.Library("headrace_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("ordered.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("ordered.out", lambda x, *, out: out.resize_(x.shape).copy_(x.sort().values), "CPU")
    yield torch.ops.headrace_test
    library._destroy()


def test_missing_operator_names_itself(host_operators):
    with pytest.raises(NotImplementedError, match=r"headrace_test::twice.*HEADRACE_FALLBACK=allow"):
        host_operators.twice(torch.ones(3, device=D))


def test_fallback_runs_on_the_host_and_counts(host_operators):
    torch.headrace.set_fallback("allow")
    torch.headrace.reset_stats()
    y = host_operators.twice(on_device(torch.tensor([3.0, 1.0, 2.0])))
    assert y.device.type == D and y.cpu().tolist() == [6, 2, 4]
    out = torch.empty(0, device=D)
    host_operators.ordered(y, out=out)
    assert out.device.type == D and out.cpu().tolist() == [2, 4, 6]
    assert sum(torch.headrace.fallbacks().values()) == torch.headrace.stats()["fallbacks"] >= 2
    assert torch.headrace.stats()["fallbacks_by_name"] == torch.headrace.fallbacks()
    assert any("twice" in name for name in torch.headrace.fallbacks())


@pytest.fixture(scope="module")
def shared_operators():
    """Operators of the host that show whose memory they work on."""
    library = torch.library.Library("headrace_shared", "DEF")
    library.define("add_to_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.define("every_second(Tensor x) -> Tensor")
    library.define("kept(Tensor x) -> Tensor")
    library.define("sums(Tensor[] xs) -> (Tensor, Tensor)")
    library.define("grown.out(Tensor x, int n, *, Tensor(a!) out) -> Tensor(a!)")
    kept = []

    def keep(x):
        kept.append(x + 1)
        return kept[-1]

    library.impl("add_to_", lambda x, y: x.add_(y), "CPU")
    library.impl("every_second", lambda x: x[::2], "CPU")
    library.impl("kept", keep, "CPU")
    library.impl("sums", lambda xs: (sum(xs), sum(x.sum() for x in xs)), "CPU")
    library.impl("grown.out", lambda x, n, *, out: out.resize_(n).fill_(x.sum()), "CPU")
    yield torch.ops.headrace_shared, kept
    library._destroy()


@pytest.mark.cpu_only
def test_fallback_copies_nothing_where_memory_is_shared(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.arange(4096.0, device=D) + 1
    y = x * 2
    torch.headrace.reset_stats()
    quantize = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask  # in C++: nobody else has its results
    levels, mask = quantize(x, 0.5, 0, 0, 255)
    operators.add_to_(x, y)
    stats = torch.headrace.stats()
    assert stats["fallbacks"] == 2 and stats["bytes_copied_in"] == stats["bytes_copied_out"] == 0
    host = torch.arange(4096.0) + 1
    expected = quantize(host, 0.5, 0, 0, 255)
    assert torch.equal(levels.cpu(), expected[0]) and torch.equal(mask.cpu(), expected[1]) and torch.equal(x.cpu(), host * 3)
    levels.add_(1)  # what was made on the host is a tensor like any other
    assert torch.equal((levels + x).cpu(), expected[0] + 1 + host * 3)
    rows, total = operators.sums([x.view(64, 64).t(), y.view(64, 64)])
    assert torch.equal(rows.cpu(), (host * 3).view(64, 64).t() + (host * 2).view(64, 64))
    assert total.device.type == D and total.item() == (host * 3).sum() + (host * 2).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bfloat16])
def test_fallback_sees_strides_offsets_and_overlaps(shared_operators, dtype):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")

    def run(device):
        base = torch.arange(60.0).to(dtype).to(device)
        whole = base.view(6, 10)
        operators.add_to_(whole.t()[3:, ::2], whole[1::2, 3:].t())  # between its rows
        operators.add_to_(base[10:20], base[10:20])
        operators.add_to_(whole[0], base[12])
        operators.add_to_(whole[:0], whole[:0])
        with pytest.raises(RuntimeError, match="single memory location"):
            operators.add_to_(base[1:], base[:-1])
        return [base, *(operators.every_second(t) for t in (whole, whole.t()[1:], base[:0], whole[1:, 4:7]))]

    for actual, expected in zip(run(D), run("cpu"), strict=True):
        assert actual.shape == expected.shape and torch.equal(actual.cpu(), expected)


@pytest.mark.cpu_only
def test_results_in_the_memory_of_an_argument_stay_views_of_it(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.arange(6.0, device=D)
    view = operators.every_second(x[1:])
    x.mul_(10)
    view.add_(1)
    assert view.tolist() == [11, 31, 51] and x.tolist() == [0, 11, 20, 31, 40, 51]


def test_fallback_does_not_share_what_somebody_on_the_host_keeps(shared_operators):
    operators, kept = shared_operators
    torch.headrace.set_fallback("allow")
    kept.clear()
    y = operators.kept(torch.zeros(1000, device=D))
    y.fill_(7)
    assert y.sum().item() == 7000 and kept[0].sum().item() == 1000


def test_fallback_resizes_what_it_writes(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.ones(3, device=D)
    for first in (torch.empty(0, device=D), torch.zeros(2, device=D), torch.zeros(40, device=D)):
        for count in (5, 500, 2):
            out = first.resize_(0) if first.numel() == 0 else first
            assert operators.grown.out(x, count, out=out) is out
            assert out.tolist() == [3.0] * count
            assert (out + 1).sum().item() == 4 * count
    whole = torch.zeros(8, device=D)
    part = whole[2:]
    operators.grown.out(x, 4, out=part)
    assert part.tolist() == [3.0] * 4 and whole.tolist() == [0, 0, 3, 3, 3, 3, 0, 0]


def test_fallback_warns_once(host_operators, capfd):
    torch.headrace.set_fallback("warn")
    torch.headrace.reset_stats()
    for _ in range(2):
        host_operators.twice(torch.ones(2, device=D))
    assert capfd.readouterr().err.count("headrace_test::twice' runs on the host") == 1


def test_complex_random_numbers():
    z = torch.randn(20000, dtype=torch.complex64, device=D).cpu()
    assert z.real.std().item() == pytest.approx(0.5**0.5, rel=0.03) and z.imag.mean().abs() < 0.03
    z = torch.rand(20000, dtype=torch.complex128, device=D).cpu()
    assert z.imag.min() >= 0 and z.real.mean().item() == pytest.approx(0.5, rel=0.03)


def test_gradient_of_complex_abs():
    gradients = []
    for place in ("cpu", D):
        z = torch.tensor([3 + 4j, 0j, -2j]).to(place).requires_grad_()
        z.abs().sum().backward()
        gradients.append(z.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


def test_comparing_tensors_of_two_dtypes():
    x = torch.arange(3, device=D)
    assert torch.equal(x, x.double()) and not torch.equal(x, x + 0.5)
    assert on_device(torch.tensor([1j, complex("nan"), 1])).isnan().tolist() == [False, True, False]


# ---- autograd


def test_backward_from_threads():
    def train(seed, losses):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(6, 6, generator=generator).to(D).requires_grad_()
        for _ in range(10):
            loss = (w @ w.t()).tanh().square().mean()
            (gradient,) = torch.autograd.grad(loss, w)
            w = (w - 0.1 * gradient).detach().requires_grad_()
        losses[seed] = loss.item()

    alone, together = {}, {}
    for seed in range(3):
        train(seed, alone)
    threads = [threading.Thread(target=train, args=(seed, together)) for seed in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert alone == together


def test_checkpoint_repeats_dropout():
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)).to(D)
    x = torch.randn(4, 8).to(D)

    def gradients(run):
        torch.manual_seed(1)
        model.zero_grad()
        run(x.requires_grad_()).sum().backward()
        return [p.grad.cpu() for p in model.parameters()]

    plain = gradients(model)
    again = gradients(lambda value: checkpoint(model, value, use_reentrant=False))
    assert all(torch.equal(a, b) for a, b in zip(plain, again))


def test_inference_mode_and_no_grad():
    model, x = make_model().eval(), torch.randn(3, 4).to(D)
    with torch.inference_mode():
        first = model(x)
    with torch.no_grad():
        assert torch.equal(first.cpu(), model(x).cpu())


def test_autocast_chooses_types():
    x = torch.ones(2, 3, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, torch.ones(4, 3, device=D))
        assert (
            y.dtype == torch.bfloat16 and y.softmax(1).dtype == torch.float32 and torch.relu(x).dtype == torch.float32
        )
    assert y.float().sum().item() == 24


def test_autocast_follows_torchs_lists():
    """One operator of each list of torch's CUDA device."""
    x, weight = torch.ones(2, 3, device=D), torch.ones(3, 3, device=D)
    half = x.half()
    F = torch.nn.functional
    with torch.autocast(D, dtype=torch.float16):
        for y in (x @ weight, F.linear(x, weight), torch.bmm(x[None], weight[None]), torch.addmm(x, x, weight)):
            assert y.dtype == torch.float16
        assert F.conv1d(x[None].transpose(1, 2), torch.ones(4, 3, 1, device=D)).dtype == torch.float16
        for y in (half.exp(), half.log(), half.pow(2), F.layer_norm(half, (3,)), F.mse_loss(half, half), half.norm()):
            assert y.dtype == torch.float32
        assert half.sum().dtype == half.softmax(1).dtype == half.cumsum(0).dtype == torch.float32
        assert half.sum(dtype=torch.float16).dtype == torch.float16, "what the caller says counts"
        assert torch.cat([half, x]).dtype == torch.addcmul(half, x, half).dtype == torch.float32
        assert torch.relu(half).dtype == (half + half).dtype == torch.float16
        assert (x.double() @ weight.double()).dtype == torch.float64, "float64 is left as it is"
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        with torch.autocast(D, enabled=False):
            assert (x @ weight).dtype == torch.float32
    assert (x @ weight).dtype == torch.float32


def test_autocast_casts_a_weight_once():
    """Inside one region a parameter is cast at its first use; outside the cast is gone, so that changes are seen."""
    x, weight = torch.ones(2, 8, device=D), torch.nn.Parameter(torch.ones(8, 8, device=D))

    def operations(uses, cache):
        torch.headrace.synchronize()
        before = torch.headrace.stats()["operations"]
        with torch.autocast(D, dtype=torch.bfloat16, cache_enabled=cache):
            for _ in range(uses):
                y = torch.nn.functional.linear(x, weight)
        assert y.dtype == torch.bfloat16
        return torch.headrace.stats()["operations"] - before, y

    one, four, uncached = (operations(uses, cache)[0] for uses, cache in ((1, True), (4, True), (4, False)))
    assert uncached - four == 3, "three casts of the weight less"
    assert four < 4 * one
    with torch.no_grad():
        weight.mul_(2)
    assert operations(2, True)[1].float().sum().item() == 2 * 8 * 16


def test_autocast_by_default_and_as_decorator():
    assert torch.get_autocast_dtype(D) in (torch.float16, torch.bfloat16)
    assert torch.amp.is_autocast_available(D)

    @torch.autocast(D, dtype=torch.bfloat16)
    def product(x):
        assert torch.is_autocast_enabled(D)
        return x @ x

    assert product(torch.ones(2, 2, device=D)).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="not supported|only supports|[Dd]isabling"):
        with torch.autocast(D, dtype=torch.int32):
            assert (torch.ones(2, 2, device=D) @ torch.ones(2, 2, device=D)).dtype == torch.float32


def train_with_scaler(place, dtype, optimizer, fused, steps=8):
    """Losses, scales and parameters of mixed-precision training; the gradients of one step overflow."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 3),
    ).to(place)
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler(place, growth_interval=3)
    x, target = torch.randn(8, 1, 8, 8).to(place), torch.arange(8).remainder(3).to(place)
    losses, scales = [], []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast(place, dtype=dtype):
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits, target)
        assert logits.dtype == dtype and loss.dtype == torch.float32
        (scaler.scale(loss) * (float("inf") if step == 4 else 1.0)).backward()
        if not fused:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimizer, fused", [("Adam", False), ("Adam", True), ("SGD", True)])
def test_mixed_precision_training_follows_torch(dtype, optimizer, fused):
    (expected, expected_scales), (got, scales) = (
        train_with_scaler(place, dtype, optimizer, fused) for place in ("cpu", D)
    )
    assert scales == expected_scales == [65536.0] * 2 + [131072.0] * 2 + [65536.0] * 3 + [131072.0]
    assert got[4] == got[5] != got[6], "the step that overflowed is left out"
    # Each layer's output is rounded to 8 or 11 bits, in both devices' own order of sums.
    assert got == pytest.approx(expected, rel=2e-2 if dtype == torch.bfloat16 else 4e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [None, float("inf"), -float("inf"), float("nan")])
def test_unscaling_gradients(dtype, bad):
    results = []
    for place in ("cpu", D):
        generator = torch.Generator().manual_seed(0)
        gradients = [torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 3), (), (4, 4), (0,))]
        if bad is not None:
            gradients[2][1, 3] = bad
        gradients = [gradient.to(place) for gradient in gradients]
        gradients[2] = gradients[2].t()
        found = torch.zeros((), device=place)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.full((), 0.3, device=place))
        results.append([found.cpu()] + [gradient.cpu() for gradient in gradients])
    for expected, got in zip(*results):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert results[1][0].item() == (bad is not None)


@pytest.mark.parametrize("growth, backoff", [(2.0, 0.5), (1.1, 0.3)])
def test_updating_the_scale(growth, backoff):
    for scale, tracker, found, interval in itertools.product((65536.0, 3e38, 1e-3), (0, 2, 5), (0.0, 2.0), (1, 3)):
        results = []
        for place in ("cpu", D):
            state = torch.full((), scale, device=place), torch.full((), tracker, dtype=torch.int32, device=place)
            returned = torch._amp_update_scale_(
                *state, torch.full((), found, device=place), growth, backoff, interval
            )
            assert returned is state[0]
            results.append([value.item() for value in state])
        assert results[0] == results[1], (scale, tracker, found, interval)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("form", ["default", "foreach", "for-loop", "fused"])
def test_optimizers_follow_torch(optimizer, form):
    names = {"default": {}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}, "fused": {"fused": True}}[
        form
    ]
    if optimizer == "RMSprop" and form == "fused":
        pytest.skip("torch has no fused RMSprop")
    names = dict(names, lr=0.05, weight_decay=0.1)
    if optimizer in ("SGD", "RMSprop"):
        names["momentum"] = 0.9
    torch.manual_seed(2)
    start = [torch.randn(3, 4), torch.randn(5), torch.randn(())]
    result = []
    for place in ("cpu", D):
        parameters = [torch.nn.Parameter(p.clone().to(place)) for p in start]
        steps = getattr(torch.optim, optimizer)(parameters, **names)
        for _ in range(5):
            steps.zero_grad()
            sum((p.sin() * p).sum() for p in parameters).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.5)
            steps.step()
        result.append([p.detach().cpu() for p in parameters])
    for expected, got in zip(*result):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


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


def test_the_folders_of_nvidias_wheels_are_named_for_the_core(tmp_path, monkeypatch):
    import headrace.torch

    (tmp_path / "nvidia" / "cu99" / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cu99" / "include").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HEADRACE_CUDA_LIBS", "/mine")
    headrace.torch._find_cuda()
    assert os.environ["HEADRACE_CUDA_LIBS"] == "/mine"
    monkeypatch.delenv("HEADRACE_CUDA_LIBS")
    headrace.torch._find_cuda()
    assert str(tmp_path / "nvidia" / "cu99" / "lib") in os.environ["HEADRACE_CUDA_LIBS"].split(":")


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
