"""torch.compile(backend="headrace"): the same results as eager code on torch's CPU device, in few captures. Functions
that can't be captured are right too, and counted."""

import copy
import gc
import logging
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from networks import CASES
from support import DEVICE, assert_same, assert_summed
from test_networks import gradient_difference, loss_difference, soften
from torch import nn

pytestmark = pytest.mark.device_only

STEPS = 5


@pytest.fixture(autouse=True)
def fresh():
    """No test reuses another one's compiled graphs."""
    torch._dynamo.reset()
    torch.headrace.reset_stats()
    yield
    torch._dynamo.reset()


# torch's own tracing log is on in these tests' DEBUG capture and buries the message of a failure
logging.getLogger("torch.__trace").setLevel(logging.INFO)


def compiled(function, **names):
    return torch.compile(function, backend="headrace", **names)


def compiled_network(model):
    if type(model).__name__ != "DCGAN":
        return compiled(model)
    model.generator, model.discriminator = compiled(model.generator), compiled(model.discriminator)
    return model


def counts():
    stats = torch.headrace.stats()
    return {name: stats["graph_" + name] for name in ("captures", "runs", "eager_runs")}


def train(case, model, batches, device, compile_it):
    """Losses, gradients and state after each network's own training steps; the network itself is compiled."""
    model = copy.deepcopy(model).to(device)
    optimizers = case.optimizers(model, lambda p: torch.optim.Adam(p, lr=1e-4))
    if compile_it:
        model = compiled_network(model)
    losses = [torch.stack(case.step(model, optimizers, tuple(t.to(device) for t in batch))) for batch in batches]
    gradients = {name: p.grad.detach().cpu().double() for name, p in model.named_parameters()}
    gradients = {name.replace("_orig_mod.", ""): g for name, g in gradients.items()}
    state = {name.replace("_orig_mod.", ""): t.detach().cpu() for name, t in model.state_dict().items()}
    return torch.stack(losses).cpu().double(), gradients, state


@pytest.mark.parametrize("name", CASES)
def test_networks_train_as_on_the_cpu(name, device):
    case = CASES[name]
    torch.manual_seed(1)
    model = soften(case.build(small=True, dropout=0.0))
    generator = torch.Generator().manual_seed(1)
    batches = [case.batch(small=True, generator=generator) for _ in range(STEPS)]
    losses, gradients, state = train(case, model, batches, "cpu", False)
    actual_losses, actual_gradients, actual_state = train(case, model, batches, device, True)
    assert loss_difference(actual_losses, losses) < 1e-4
    assert gradient_difference(actual_gradients, gradients) < 1e-3
    for key, value in state.items():
        if "num_batches_tracked" in key:
            assert actual_state[key] == value, key
    seen = counts()
    assert seen["eager_runs"] == 0
    assert seen["runs"] >= (2 * STEPS if name != "lstm" else 0)  # dynamo leaves nn.LSTM to eager code
    assert seen["captures"] <= 8


@pytest.mark.parametrize("name", CASES)
def test_networks_infer_as_on_the_cpu(name, device):
    case = CASES[name]
    model = case.build(small=True).eval()
    batch = case.batch(small=True)
    moved = compiled_network(copy.deepcopy(model).to(device))
    with torch.no_grad():
        expected = case.infer(model, batch)
        for _ in range(3):
            actual = case.infer(moved, tuple(t.to(device) for t in batch))
    assert_summed(actual, expected, name, factor=5)
    assert counts()["eager_runs"] == 0
    assert counts()["runs"] >= (3 if name != "lstm" else 0)


# ---- few captures, for any change between the calls


def test_batch_sizes_get_a_bounded_number_of_graphs(device):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    moved = compiled(copy.deepcopy(model).to(device))
    with torch.no_grad():
        for count in (4, 7, 1, 4, 9, 7, 4):
            x = torch.randn(count, 8)
            assert_summed(moved(x.to(device)), model(x), f"batch {count}")
    assert counts()["eager_runs"] == 0
    assert counts()["captures"] <= 8


def test_offsets_into_a_storage_are_variants(device):
    data = torch.randn(10, 6)
    on_device = data.to(device)
    add = compiled(lambda x: x * 2 + 1)
    for i in range(40):
        assert_same(add(on_device[i % 10]), data[i % 10] * 2 + 1, f"row {i % 10}")
    assert counts()["captures"] <= 11
    assert counts()["eager_runs"] == 0


def test_numbers_that_change_are_not_baked(device):
    x = torch.randn(5)
    moved = x.to(device)
    scale = compiled(lambda x, number: x * number + number)
    for number in (1.5, 2.5, 3.5, 4.5, -1.0):
        assert_same(scale(moved, number), x * number + number, f"number {number}")
    host = compiled(lambda x, number: x * number)
    before = counts()["eager_runs"]  # dynamo passes a number that changed as a tensor whose item() is taken
    for number in (1.5, 2.5, 3.5):
        assert_same(host(moved, torch.tensor(number)), x * number, f"tensor {number}")
    assert counts()["eager_runs"] == before


def test_whole_numbers_from_shapes_are_not_baked(device):
    mean = compiled(lambda x: x.sum() / x.size(0) + torch.arange(x.size(0), device=x.device), dynamic=True)
    for count in (3, 5, 3, 8):
        x = torch.randn(count)
        assert_same(mean(x.to(device)), x.sum() / count + torch.arange(count), f"{count}", rtol=1e-5)
    assert counts()["eager_runs"] == 0


# ---- random numbers


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_draws_anew_and_is_reproducible(grad, device):
    drop = compiled(lambda x: F.dropout(x * 2, 0.5))
    x = torch.ones(1000, device=device, requires_grad=grad)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    again = drop(x)
    torch.manual_seed(3)
    eager = F.dropout(x * 2, 0.5)
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(first.cpu(), again.cpu())
    assert torch.equal(first.cpu(), eager.cpu())
    assert counts() == {"captures": 1, "runs": 3, "eager_runs": 0}
    if grad:
        (gradient,) = torch.autograd.grad(second.sum(), x)
        assert torch.equal(gradient.cpu(), second.detach().cpu())  # 2 / (1 - p) if it was kept


def test_dropout_in_attention_has_the_gradient_of_its_own_mask(device):
    query, key, value = (torch.randn(2, 2, 6, 4, device=device, requires_grad=True) for _ in range(3))

    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)

    attend_compiled = compiled(attend)
    attend_compiled(query, key, value)
    torch.manual_seed(5)
    actual = attend_compiled(query, key, value)
    actual_gradients = torch.autograd.grad(actual.square().sum(), (query, key, value))
    torch.manual_seed(5)
    expected = attend(query, key, value)
    expected_gradients = torch.autograd.grad(expected.square().sum(), (query, key, value))
    assert torch.equal(actual.cpu(), expected.cpu())
    for name, got, wanted in zip(("query", "key", "value"), actual_gradients, expected_gradients, strict=True):
        assert torch.equal(got.cpu(), wanted.cpu()), name
    assert counts()["eager_runs"] == 0


# ---- changes in place, views, aliases


def test_running_statistics_move_in_place(device):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    for grad in (True, False):
        expected, actual = copy.deepcopy(model).train(), copy.deepcopy(model).to(device).train()
        before = actual[1].running_mean
        run = compiled(actual)
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                x = torch.randn(4, 2, 6, 6)
                assert_summed(run(x.to(device)), expected(x), "output", factor=5)
        assert actual[1].running_mean is before
        assert_summed(actual[1].running_mean, expected[1].running_mean, "running mean", factor=5)
        assert_summed(actual[1].running_var, expected[1].running_var, "running variance", factor=5)
        assert actual[1].num_batches_tracked.item() == 3
    assert counts()["eager_runs"] == 0


def test_a_compiled_step_has_no_more_operations_than_an_eager_one(device):
    case = CASES["resnet50"]
    model = case.build(small=True).to(device)
    batch = tuple(t.to(device) for t in case.batch(small=True))
    operations = []
    for run in (model, compiled(model)):
        for _ in range(2):
            torch.headrace.reset_stats()
            F.cross_entropy(run(batch[0]), batch[1]).backward()
        operations.append(torch.headrace.stats()["operations"])
    assert operations[1] <= operations[0]


def test_inputs_are_changed_in_place(device):
    def step(x, y):
        x.add_(y)
        return x * 2

    x, y = torch.randn(6), torch.randn(6)
    on_device, version = x.to(device), None
    run = compiled(step)
    for _ in range(3):
        expected = step(x, y)
        version = on_device._version
        assert_same(run(on_device, y.to(device)), expected)
        assert on_device._version > version
    assert_same(on_device, x)
    alias = on_device.view(6)
    assert_same(run(on_device, alias), step(x, x))  # memory that is written is shared: operation by operation
    assert_same(on_device, x)


def test_results_that_are_inputs_and_views_of_them(device):
    def several(x):
        return x, x[1:], x.t(), x + 1, x.view(-1)

    x = torch.randn(3, 4)
    for grad in (False, True):
        run = compiled(several)
        given = x.to(device).requires_grad_(grad)
        for _ in range(2):
            results = run(given)
            for got, wanted in zip(results, several(x), strict=True):
                assert_same(got, wanted)
            assert results[0] is given
        if not grad:
            results[1].fill_(7)
            assert_same(given[1:], torch.full((2, 4), 7.0))
            assert_same(results[4][4:], torch.full((8,), 7.0))
        else:
            (gradient,) = torch.autograd.grad(results[2].sum() + results[3].sum(), given)
            assert_same(gradient, torch.full((3, 4), 2.0))


def test_results_that_share_memory_have_gradients(device):
    def views(x):
        y = x * 3
        return y, y[1:], y.view(-1)

    x = torch.randn(3, 4, device=device, requires_grad=True)
    y, part, flat = compiled(views)(x)
    (gradient,) = torch.autograd.grad(y.sum() + part.sum() + flat.sum(), x)
    expected = torch.full((3, 4), 9.0)
    expected[0] = 6
    assert_same(gradient, expected)


# ---- gradients


def test_results_that_share_memory_need_a_weight_again(device):
    """Two views of one result: AOTAutograd's forward graph gives the weight itself back, for the backward pass."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Conv2d(4, 6, 1))
    x = torch.randn(3, 2, 5, 5)
    expected, actual = copy.deepcopy(model), copy.deepcopy(model).to(device)
    run = compiled(lambda x: actual(x).chunk(2, dim=1))
    for _ in range(2):
        for halves in (expected(x).chunk(2, dim=1), run(x.to(device))):
            (halves[0].sin() * halves[1].exp()).sum().backward()
    for got, wanted in zip(actual.parameters(), expected.parameters()):
        assert_summed(got.grad, wanted.grad, factor=5)
    assert counts()["eager_runs"] == 0


def test_gradients_of_some_results_and_inputs(device):
    def function(x, y, z):
        return x * y, (x + 1).detach(), y.sin(), x.argmax()

    x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    z = torch.randn(4, requires_grad=True)
    moved = [t.detach().to(device).requires_grad_() for t in (x, y, z)]
    run = compiled(function)
    for _ in range(2):
        results, expected = run(*moved), function(x, y, z)
        for got, wanted in zip(results, expected, strict=True):
            assert_same(got, wanted)
            assert got.requires_grad == wanted.requires_grad
        got = torch.autograd.grad(results[0].sum(), moved, allow_unused=True)
        wanted = torch.autograd.grad(expected[0].sum(), (x, y, z), allow_unused=True)
        assert_same(got[0], wanted[0])
        assert_same(got[1], wanted[1])
        assert got[2] is None and wanted[2] is None
    assert counts()["eager_runs"] == 0


def test_a_gradient_that_repeats_itself(device):
    x, y = (torch.randn(3, device=device, requires_grad=True) for _ in range(2))
    compiled(lambda x, y: x + y)(x, y).sum().backward()
    x.grad.add_(1)
    assert_same(x.grad, torch.full((3,), 2.0))
    assert_same(y.grad, torch.full((3,), 1.0))


def test_second_backward(device):
    x = torch.randn(4, device=device, requires_grad=True)
    run = compiled(lambda x: (x * 2).tanh().exp())
    loss = run(x).sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first.cpu(), second.cpu())
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(run(x).sum(), x, create_graph=True)


def test_batches_of_gradients_are_refused(device):
    """They have no memory of their own, which a graph reads."""
    x = torch.randn(4, device=device, requires_grad=True)
    y = compiled(lambda x: (x * 2).sin())(x)
    with pytest.raises(RuntimeError, match="vmap"):
        torch.autograd.grad(y, x, torch.eye(4, device=device), is_grads_batched=True)


def test_a_changed_input_or_result_is_noticed_by_backward(device):
    run = compiled(lambda x, w: (x * w).exp())
    for change_result in (False, True):
        x, w = torch.randn(4, device=device, requires_grad=True), torch.randn(4, device=device)
        result = run(x, w)
        with torch.no_grad():
            (result if change_result else w).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_checkpoint_and_autocast(device):
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(6, 6)
    moved = copy.deepcopy(layer).to(device)
    x = torch.randn(5, 6)
    compiled(lambda x: checkpoint(lambda x: moved(x).tanh(), x, use_reentrant=False).sum())(x.to(device)).backward()
    layer(x).tanh().sum().backward()
    assert_summed(moved.weight.grad, layer.weight.grad, "weight", factor=5)

    def half(x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return layer(x) if x.device.type == "cpu" else moved(x)

    assert_summed(compiled(half)(x.to(device)), half(x), "autocast", factor=2)


@pytest.mark.parametrize("mode", ["fuse", "eager", "strict"])
def test_modes_give_the_same(mode, device):
    torch.headrace.set_mode(mode)
    layer = nn.Linear(6, 6)
    moved = copy.deepcopy(layer).to(device)
    run, x = compiled(moved), torch.randn(5, 6)
    for _ in range(2):
        moved.zero_grad(), layer.zero_grad()
        run(x.to(device)).relu().sum().backward()
        layer(x).relu().sum().backward()
        assert_summed(moved.weight.grad, layer.weight.grad, mode, factor=5)


def test_inference_mode(device):
    layer = nn.Linear(6, 6)
    run, x = compiled(copy.deepcopy(layer).to(device)), torch.randn(5, 6)
    moved = x.to(device)
    with torch.inference_mode():
        for _ in range(3):
            result = run(moved)
            assert result.is_inference()
            assert_summed(result, layer(x), "inference mode")
    assert_summed(run(moved), layer(x), "with gradients")
    assert counts()["eager_runs"] == 0


# ---- functions that can't be captured, and errors


def test_values_break_the_graph(device):
    def function(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y.max().item() + y

    run = compiled(function)
    for x in (torch.ones(4), -torch.ones(4), torch.ones(4)):
        assert_same(run(x.to(device)), function(x))


def test_what_the_host_computes_runs_eagerly_and_is_counted(device, caplog):
    def noisy(x):
        return x + torch.rand(4).to(x.device)

    x = torch.zeros(4, device=device)
    run = compiled(noisy)
    with caplog.at_level(logging.WARNING, "headrace.torch_compile"):
        first, second = run(x), run(x)
    assert not torch.equal(first.cpu(), second.cpu())
    assert counts()["eager_runs"] == 2
    assert counts()["runs"] == 0
    assert "host" in caplog.text


def test_a_generator_of_its_own_runs_eagerly(device):
    generator = torch.Generator(device)
    weights = torch.zeros(50, device=device)

    def noisy(x):
        return x + torch.empty_like(x).normal_()

    run = compiled(noisy)
    torch.manual_seed(1)
    first = run(weights)
    torch.manual_seed(1)
    assert torch.equal(first.cpu(), run(weights).cpu())
    assert generator.initial_seed() is not None


def test_errors_of_deferred_work_are_reported_and_then_over(device):
    table = torch.randn(5, 3)
    look_up = compiled(lambda table, index: F.embedding(index, table) * 2)
    moved = table.to(device)
    good, bad = torch.tensor([1, 4]), torch.tensor([1, 9])
    assert_same(look_up(moved, good.to(device)), F.embedding(good, table) * 2)
    with pytest.raises(IndexError):
        look_up(moved, bad.to(device)).cpu()
    assert_same(look_up(moved, good.to(device)), F.embedding(good, table) * 2)
    assert_same(moved, table)


def test_wrong_shapes_raise_what_eager_code_raises(device):
    run = compiled(lambda a, b: a @ b)
    with pytest.raises(Exception, match="mat1 and mat2 shapes cannot be multiplied|size|Sizes"):
        run(torch.randn(2, 3, device=device), torch.randn(4, 5, device=device))


def test_host_graphs_stay_on_the_host():
    assert_same(compiled(lambda x: x + 1)(torch.ones(3)), torch.full((3,), 2.0))
    assert counts() == {"captures": 0, "runs": 0, "eager_runs": 0}


def test_options_are_refused(device):
    with pytest.raises(Exception, match="no options"):
        compiled(lambda x: x + 1, options={"fast": True})(torch.ones(3, device=device))


def test_two_threads_run_one_graph(device):
    from concurrent.futures import ThreadPoolExecutor

    run = compiled(lambda x: (x * 2).tanh())
    x = torch.randn(64)
    moved = x.to(device)
    run(moved)
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(lambda _: run(moved), range(100)):
            assert_same(result, (x * 2).tanh())
    assert counts()["eager_runs"] == 0


# ---- the function that the backend returns


def returned_function(function, *arguments):
    """The function that the backend returns to dynamo."""
    from torch._dynamo import lookup_backend

    returned = []

    def backend(module, inputs):
        returned.append(lookup_backend("headrace")(module, inputs))
        return returned[-1]

    torch.compile(function, backend=backend)(*arguments)
    return returned[0]


def test_the_returned_function_is_no_python(device):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    function = returned_function(lambda x, y: (x + y, x * y), x.to(device), y.to(device))
    assert isinstance(function, types.BuiltinFunctionType)
    for n in (4, 2, 4):  # a geometry that was not captured ahead, and back
        for result, expected in zip(function(x[:n].to(device), y[:n].to(device)), (x + y, x * y)):
            assert_same(result, expected[:n])
    assert counts() == {"captures": 2, "runs": 4, "eager_runs": 0}


def test_the_returned_function_refuses_what_is_no_tensor(device):
    function = returned_function(lambda x, y: x + y, *torch.ones(2, 3).to(device))
    with pytest.raises(RuntimeError):
        function(torch.ones(3).to(device), "a word")
    with pytest.raises(TypeError):
        function(x=torch.ones(3).to(device))


def test_the_returned_function_keeps_nothing(device):
    x = torch.ones(3).to(device)
    function = returned_function(lambda x: x * 2, x)
    function(x)
    gc.collect()
    before, tensors = sys.getrefcount(x), sum(type(o) is torch.Tensor for o in gc.get_objects())
    for _ in range(100):
        function(x)
    gc.collect()
    assert sys.getrefcount(x) == before
    assert sum(type(o) is torch.Tensor for o in gc.get_objects()) <= tensors


def test_constants_of_the_host_stay_with_the_results(device):
    x = torch.ones(3)
    run = compiled(lambda x: (x * 2, torch.tensor([1.0, 2.0])))
    for _ in range(3):
        result, constant = run(x.to(device))
        assert_same(result, x * 2)
        assert constant.device.type == "cpu" and constant.tolist() == [1.0, 2.0]
        constant.zero_()  # the caller's own


# ---- dynamo's code before a graph's call


def called_before_a_graph(monkeypatch):
    """The names of dynamo's functions that its bytecode calls from now on."""
    called = []
    for module, name in (
        (torch._dynamo.utils, "get_current_stream"),
        (torch._dynamo.utils, "record_pregraph_bytecode_enter"),
        (torch._dynamo.graph_bytecode_inputs, "store_user_object_weakrefs"),
    ):
        own = getattr(module, name)
        note = lambda *arguments, own=own, name=name: (called.append(name), own(*arguments))[1]  # noqa: E731
        monkeypatch.setattr(module, name, note)
    return called


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "record_runtime_overhead"), reason="an older torch")
def test_nothing_needless_is_called_before_a_graph(device, monkeypatch):
    x = torch.randn(3)
    moved = x.to(device)
    layer = nn.Linear(3, 2).to(device)
    add, train = compiled(lambda x: x + 1), compiled(layer)
    train(moved).sum().backward()
    add(moved)
    called = called_before_a_graph(monkeypatch)
    assert_same(add(moved), x + 1)
    train(moved).sum().backward()
    assert called == []
    assert torch._dynamo.config.record_runtime_overhead
    other = torch.compile(lambda x: x * 2, backend="eager")  # keeps dynamo's arguments
    other(moved)
    called.clear()
    assert_same(other(moved), x * 2)
    assert called  # the profiler's record up to torch 2.14, the current stream from torch 2.12 on


def test_settings_come_back_when_a_compilation_fails(device, monkeypatch):
    def fail(*_, **__):
        raise ValueError("not today")

    monkeypatch.setattr("headrace.torch_compile.Graph", fail)
    with pytest.raises(Exception, match="not today"):
        compiled(lambda x: x + 1)(torch.ones(3).to(device))
    assert getattr(torch._dynamo.config, "record_runtime_overhead", True)


def synchronized(x):
    y = x + 1
    torch.accelerator.current_stream().synchronize()
    return y * 2


def with_an_event(x):
    event = torch.Event()
    y = x + 1
    event.record()
    event.synchronize()
    return y * 2


def on_another_stream(x):
    with torch.Stream(device=x.device):
        y = x + 1
    return y * 2


def broken_on_another_stream(x):
    with torch.Stream(device=x.device):
        y = x + 1
        torch._dynamo.graph_break()
        y = y + 1
    return y * 2


def giving_the_stream(x):
    stream = torch.accelerator.current_stream()
    return (x + 1) * (2 if stream.device == x.device else 3), stream


@pytest.mark.parametrize(
    "function", [synchronized, with_an_event, on_another_stream, broken_on_another_stream, giving_the_stream]
)
def test_streams_in_a_graph(function, device):
    x = torch.randn(4).to(device)
    run = compiled(function)
    for _ in range(3):
        actual, expected = run(x), function(x)
        if isinstance(actual, tuple):
            assert actual[1] == expected[1]
            actual, expected = actual[0], expected[0]
        assert_same(actual, expected.cpu())
    assert torch.accelerator.current_stream() == torch.headrace.default_stream()


# ---- calls that are always waited for


@pytest.mark.parametrize("activation", [nn.Softshrink(0.1), nn.ReLU(), nn.LeakyReLU(-0.5), nn.Tanh()])
def test_calls_that_are_always_waited_for(activation, device):
    """Their kernels begin before the wait: the host's actions in between change and miss nothing."""
    torch.manual_seed(3)
    layers = [nn.Linear(784, 256), activation, nn.Linear(256, 256), activation, nn.Linear(256, 10)]
    network = nn.Sequential(*layers).eval()
    mine = copy.deepcopy(network).to(device)
    function = compiled(mine)
    x = torch.randn(1, 784)
    moved = x.to(device)
    with torch.no_grad():
        expected = network(x)
        for odd in range(5):
            bits = None
            for _ in range(40):
                result = function(moved)
                torch.headrace.synchronize()
                bits = result.cpu() if bits is None else bits
                assert torch.equal(result.cpu(), bits)
            assert_summed(bits, expected, activation, factor=784)
            result = function(moved)
            if odd == 0:  # operations after it
                assert torch.equal((result + 1).cpu(), bits + 1)
            elif odd == 1:  # the input and a parameter change after it
                moved.zero_()
                mine[0].bias.add_(1)
                assert torch.equal(result.cpu(), bits)
                network[0].bias.add_(1)
                moved.copy_(x)
                expected = network(x)
            elif odd == 2:  # read never, and then two of them
                del result
                first, second = function(moved), function(moved.clone())
                assert torch.equal(first.cpu(), bits) and torch.equal(second.cpu(), bits)
            elif odd == 3:  # the host writes, and uses its own threads
                other = torch.ones(1 << 20).to(device)
                assert (x.expand(4096, -1).sin().sum().isfinite()) and other.sum().item() == 1 << 20
                assert torch.equal(result.cpu(), bits)
            else:
                x[0, 5] = float("nan")
                moved.copy_(x)
                assert function(moved).cpu().isnan().all() == network(x).isnan().all()
    assert counts()["captures"] == 1 and counts()["eager_runs"] == 0


# ---- an optimizer


OPTIMIZERS = {"sgd": (torch.optim.SGD, {"momentum": 0.9}), "adam": (torch.optim.Adam, {})}
OPTIMIZERS["capturable"] = (torch.optim.Adam, {"capturable": True})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_optimizer_step(name, device):
    """Adam counts its steps on the host unless it is capturable: then it runs operation by operation."""
    layer = nn.Linear(4, 4)
    moved = copy.deepcopy(layer).to(device)
    make, options = OPTIMIZERS[name]
    mine = make(moved.parameters(), lr=0.1, **options)
    theirs = make(layer.parameters(), lr=0.1, **{key: value for key, value in options.items() if key != "capturable"})
    step = compiled(mine.step)
    for _ in range(4):
        x = torch.randn(3, 4)
        for network, optimizer, run in ((moved, mine, step), (layer, theirs, theirs.step)):
            optimizer.zero_grad()
            network(x.to(network.weight.device)).square().sum().backward()
            run()
    assert_summed(moved.weight, layer.weight, name, factor=20)
    assert (counts()["eager_runs"] == 0) == (name != "adam")


# ---- without a backend, and numbers that never repeat


def test_compile_without_a_backend_is_ours(device):
    x = torch.randn(4, 3)
    add = torch.compile(lambda x: (x + 1).relu())
    assert_same(add(x.to(device)), (x + 1).relu())
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    moved = torch.compile(copy.deepcopy(model).to(device))
    model(x).sum().backward()
    moved(x.to(device)).sum().backward()
    for mine, other in zip(moved.parameters(), model.parameters()):
        assert_summed(mine.grad, other.grad)
    assert counts()["captures"] >= 2 and counts()["eager_runs"] == 0


def test_numbers_and_lengths_that_never_repeat_are_not_captured(device):
    x = torch.randn(100)
    moved = x.to(device)
    scale = compiled(lambda x, number: x * number - number)
    for i in range(30):
        number = 0.5 + i / 7
        assert_same(scale(moved, number), x * number - number, f"number {number}")
    assert counts()["eager_runs"] == 0 and counts()["captures"] <= 12
    torch._dynamo.reset()
    before = counts()["captures"]
    head = compiled(lambda x, count: (x[:count] * 2).sum())
    for count in range(2, 60):
        assert_same(head(moved, count), (x[:count] * 2).sum(), f"length {count}", rtol=1e-4, atol=1e-4)
    assert counts()["eager_runs"] == 0 and counts()["captures"] - before <= 12


def test_numbers_that_repeat_are_captured(device):
    x = torch.randn(5)
    moved = x.to(device)
    scale = compiled(lambda x, number: x * number)
    for number in [1.0, 2.0, *range(3, 20), 0.0, -0.0] * 3:
        made = scale(moved, float(number))
        assert_same(made, x * float(number), f"number {number}")
        assert torch.equal(made.cpu().signbit(), (x * float(number)).signbit())
    assert counts()["eager_runs"] == 0 and counts()["runs"] >= 20


def test_floats_that_change_are_numbers_of_a_run(device):
    x, y = torch.randn(4, 5), torch.randn(4, 5)

    def function(x, y, number, other):
        return x * number - y / other + torch.add(x, y, alpha=number) + torch.sub(y, x, alpha=other) + (y > other)

    step = compiled(function)
    moved = [x.to(device), y.to(device)]
    for i in range(40):
        numbers = 0.3 + i / 7, 2.5 - i / 3
        assert torch.equal(step(*moved, *numbers).cpu(), function(*moved, *numbers).cpu()), numbers
    assert counts()["eager_runs"] == 0 and counts()["captures"] <= 3 and counts()["runs"] >= 39


def test_floats_that_change_reach_the_backward_pass(device):
    step = compiled(lambda x, w, rate: ((x * w * rate).tanh() * rate).sum())
    x, seen = torch.randn(4, 5), []
    for where, function in ((device, step), ("cpu", lambda x, w, rate: ((x * w * rate).tanh() * rate).sum())):
        w = torch.ones(5, device=where, requires_grad=True)
        losses = [function(x.to(where), w, 0.1 + i / 9) for i in range(20)]
        seen.append([torch.autograd.grad(loss, w)[0].cpu() for loss in reversed(losses)])
    for mine, theirs in zip(*seen):
        assert_summed(mine, theirs)
    assert counts()["eager_runs"] == 0 and counts()["captures"] <= 3


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0, float("inf"), float("nan"), 70000.0])
def test_special_floats_are_what_eager_code_makes_of_them(number, device):
    x, y = torch.randn(5).to(device), torch.randn(5).to(device)
    step = compiled(lambda x, y, number: torch.add(x, y, alpha=number) * number)
    for value in (0.5, 0.75, number, 0.25, number):
        made, wanted = step(x, y, value).cpu(), (torch.add(x, y, alpha=value) * value).cpu()
        assert torch.equal(made.nan_to_num(), wanted.nan_to_num()) and torch.equal(made.signbit(), wanted.signbit())


def test_floats_in_other_operations_are_captured_by_value(device):
    x = torch.rand(6) + 0.5
    functions = [lambda x, n: x**n, lambda x, n: x * (2 * n), lambda x, n: x.clamp(n)]
    functions.append(lambda x, n: F.leaky_relu(x - 1, n) * n)
    for function in functions:
        torch._dynamo.reset()
        step = compiled(function)
        for number in (0.25, 0.3, 0.7, 2.0, 0.5):
            assert_same(step(x.to(device), number), function(x, number), str(number), rtol=1e-5)


def test_bools_of_other_bytes_are_true_in_a_graph(device):
    memory = torch.tensor([0, 1, 2, 3, 128, 255, 0, 7], dtype=torch.uint8)
    x, clean = torch.randn(8), memory.bool()

    def function(mask, x):
        other = mask.view(torch.uint8).view(torch.bool)
        return torch.where(mask, x, -x), ~mask, mask.sum(), mask & other, mask == other, x * mask, mask.any(), x[mask]

    made = compiled(function)(memory.to(device).view(torch.bool), x.to(device))
    for mine, theirs in zip(made, function(clean, x)):
        assert_same(mine, theirs)
    half = compiled(lambda memory, x: function(memory.view(torch.bool), x)[:3])
    for mine, theirs in zip(half(memory.to(device), x.to(device)), function(clean, x)):
        assert_same(mine, theirs)
