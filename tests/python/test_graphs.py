"""Graphs that a program captures: torch.accelerator.Graph, torch.headrace.graph, make_graphed_callables."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, DRIVER
from torch import nn

pytestmark = pytest.mark.device_only

ACCELERATOR = torch.accelerator.current_accelerator()
HAS_ACCELERATOR_GRAPHS = (
    hasattr(torch.accelerator, "Graph") and ACCELERATOR is not None and ACCELERATOR.type == torch.device(DEVICE).type
)


def captured(graph):
    """A context that captures into a graph of either kind."""
    return torch.headrace.graph(graph) if isinstance(graph, torch.headrace.Graph) else graph


@pytest.fixture(params=["headrace", "accelerator"])
def graph(request):
    if request.param == "headrace":
        return torch.headrace.Graph()
    if not HAS_ACCELERATOR_GRAPHS:
        pytest.skip("torch has no graphs of accelerators, or another one")
    return torch.accelerator.Graph()


def test_graphs_is_a_module_as_in_torch_cuda():
    for name in ("graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"):
        assert getattr(torch.headrace.graphs, name) is getattr(torch.headrace, name)


def test_a_replay_reads_and_writes_the_tensors_of_the_capture(graph):
    x, total = torch.ones(100, device=DEVICE), torch.zeros(100, device=DEVICE)
    with captured(graph):
        y = (x * 2 + 1).relu()
        total += y
    assert total.sum().item() == 0  # nothing has run
    for value in (1.0, 2.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert (y == 2 * value + 1).all()
    assert total.sum().item() == 100 * (3 + 5 + 11)
    graph.replay()
    graph.replay()
    assert total.sum().item() == 100 * (3 + 5 + 11 + 11 + 11)


def test_a_replay_fuses_with_its_neighbours(graph):
    x = torch.ones(1000, device=DEVICE)
    with captured(graph):
        y = x * 2
    results = []
    for again in range(2):
        torch.headrace.synchronize()
        torch.headrace.reset_stats()
        x.add_(1)
        graph.replay()
        results = y - 1
        torch.headrace.synchronize()
        assert torch.headrace.stats()["groups"] == 1 or DRIVER != "cpu"  # an idle GPU begins before the replay
    assert (results == 5).all()


def test_graphs_of_other_lengths_have_general_plans(graph):
    """Each length is captured by itself; most of their programs are copies of the first few."""
    before = torch.headrace.stats()
    for length in range(70, 50, -1):
        x = torch.arange(float(length), device=DEVICE)
        with captured(graph):
            y = (x[:, None] * torch.arange(5.0, device=DEVICE) + 1).sum(0)
        for value in (1, 2):
            x.fill_(value)
            graph.replay()
            assert y.tolist() == [length * (value * column + 1) for column in range(5)]
        graph.reset()
    after = torch.headrace.stats()
    assert after["general_plans"] - before["general_plans"] > 10


def test_a_training_step_with_its_backward_pass(graph):
    """The backward pass runs on a thread of autograd's and is captured all the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(DEVICE)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin))
    data = [(torch.randn(4, 8, device=DEVICE), torch.randint(0, 3, (4,), device=DEVICE)) for _ in range(5)]
    x, y = torch.zeros(4, 8, device=DEVICE), torch.zeros(4, dtype=torch.long, device=DEVICE)

    def step(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for m, o in ((model, optimizer), (twin, other)):  # makes the gradients and the momentum
        step(m, o, *data[0])
    with captured(graph):
        loss = step(model, optimizer, x, y)
    for inputs, labels in data:
        x.copy_(inputs), y.copy_(labels)
        graph.replay()
        torch.testing.assert_close(loss, step(twin, other, inputs, labels))
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q)


def test_each_replay_draws_new_random_numbers(graph):
    x = torch.ones(1000, device=DEVICE)
    with captured(graph):
        y, z = F.dropout(x, 0.5), torch.rand(10, device=DEVICE)
    torch.manual_seed(7)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append((y.clone(), z.clone()))
    torch.manual_seed(7)
    for kept, uniform in seen:
        assert torch.equal(kept, F.dropout(x, 0.5)) and torch.equal(uniform, torch.rand(10, device=DEVICE))
    assert not torch.equal(seen[0][0], seen[1][0])


def test_what_a_capture_refuses(graph):
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="not been captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="not being captured"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="nothing runs before the graph does"), captured(graph):
        x.sum().item()
    graph.reset()
    with pytest.raises(RuntimeError, match="timed event"), captured(graph):
        torch.headrace.Event(enable_timing=True).record()
    graph.reset()
    with captured(graph):
        other = torch.headrace.Graph()
        with pytest.raises(RuntimeError, match="captured already"):
            other.capture_begin()
        y = x + 1
    with pytest.raises(RuntimeError, match="reset"):
        graph.capture_begin()
    graph.replay()
    assert (y == 2).all()
    graph.reset()
    with captured(graph):
        z = x + 2
    graph.replay()
    assert (z == 3).all()


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD"])
def test_an_optimizer_that_counts_its_steps_on_the_host_refuses(kind):
    parameter = nn.Parameter(torch.ones(3, device=DEVICE))
    optimizer = getattr(torch.optim, kind)([parameter])
    parameter.grad = torch.ones(3, device=DEVICE)
    optimizer.step()
    before = parameter.detach().clone()
    graph = torch.headrace.Graph()
    with pytest.raises(RuntimeError, match="counts its steps"), torch.headrace.graph(graph):
        optimizer.step()
    assert torch.equal(parameter.detach(), before)
    optimizer.step()
    assert not torch.equal(parameter.detach(), before)


def test_other_threads_are_not_captured():
    x, seen = torch.ones(10, device=DEVICE), []
    graph = torch.headrace.Graph()

    def work():
        seen.append((x + 1).sum().item())

    with torch.headrace.graph(graph):
        assert torch.headrace.is_current_stream_capturing()
        y = x * 3
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not torch.headrace.is_current_stream_capturing()
    graph.replay()
    assert seen == [20] and (y == 3).all()


def test_a_graph_goes_with_its_memory():
    def allocated():
        torch.headrace.synchronize()
        return torch.headrace.memory_allocated()

    before = allocated()
    x = torch.ones(1 << 20, device=DEVICE)
    graph = torch.headrace.Graph()
    with torch.headrace.graph(graph, stream=torch.headrace.Stream()):
        y = x * 2
        z = (y + 1) * y  # y + 1 and y need no memory of their own
        del y
    graph.replay()
    assert allocated() - before <= 2 * 4 << 20
    assert (z == 6).all()
    del z
    x.fill_(2)
    graph.replay()  # z's memory is the graph's
    torch.headrace.synchronize()
    del graph, x
    assert allocated() <= before + 4096


def test_make_graphed_callables_of_modules():
    torch.manual_seed(0)
    first, second = nn.Sequential(nn.Linear(8, 16), nn.GELU()).to(DEVICE), nn.Linear(16, 4).to(DEVICE)
    plain = copy.deepcopy((first, second))
    x, h = torch.randn(4, 8, device=DEVICE), torch.randn(4, 16, device=DEVICE, requires_grad=True)
    first, second = torch.headrace.make_graphed_callables((first, second), ((x,), (h,)))
    optimizers = [
        torch.optim.Adam([*a.parameters(), *b.parameters()], lr=0.01) for a, b in ((first, second), plain)
    ]
    for _ in range(4):
        given, losses = torch.randn(4, 8, device=DEVICE), []
        for (a, b), optimizer in zip(((first, second), plain), optimizers):
            optimizer.zero_grad()
            loss = b(a(given)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for p, q in zip((*first.parameters(), *second.parameters()), (*plain[0].parameters(), *plain[1].parameters())):
        torch.testing.assert_close(p, q)
    first.eval()
    torch.testing.assert_close(first(x[:2]), plain[0](x[:2]))  # not the captured mode: as before


def test_make_graphed_callables_of_a_function():
    x = torch.ones(5, device=DEVICE, requires_grad=True)
    f = torch.headrace.make_graphed_callables(lambda a, b: (a * b, b + 1), (x, torch.ones(5, device=DEVICE)))
    a = torch.full((5,), 3.0, device=DEVICE, requires_grad=True)
    product, more = f(a, torch.full((5,), 2.0, device=DEVICE))
    product.sum().backward()
    assert (product == 6).all() and (more == 3).all() and (a.grad == 2).all() and not more.requires_grad
    with pytest.raises(ValueError, match=r"got \[4\]"):
        f(torch.ones(4, device=DEVICE), torch.ones(5, device=DEVICE))
    with pytest.raises(TypeError, match="tensors alone"):
        torch.headrace.make_graphed_callables(lambda a, b: a * b, (x, 2.0))


# ---- generators


def test_default_generators_are_those_of_the_devices():
    generators = torch.headrace.default_generators
    assert len(generators) == torch.headrace.device_count() and generators[0].device.type == "headrace"
    assert generators[0] is torch.headrace.default_generators[0]
    torch.manual_seed(3)
    expected = torch.rand(4, device=DEVICE)
    generators[0].manual_seed(3)
    assert torch.equal(torch.rand(4, device=DEVICE), expected)


def test_generators_share_a_state():
    generator = torch.Generator(DEVICE).manual_seed(5)
    shared, copied = generator.graphsafe_get_state(), generator.clone_state()
    first = torch.rand(4, device=DEVICE, generator=generator)
    second = torch.rand(4, device=DEVICE, generator=shared)
    assert not torch.equal(first, second)
    assert torch.equal(torch.rand(4, device=DEVICE, generator=copied), first)
    other = torch.Generator(DEVICE)
    other.graphsafe_set_state(copied)
    assert torch.equal(torch.rand(4, device=DEVICE, generator=other), second)
    assert copied.get_offset() == generator.get_offset() == other.get_offset() > 0
    with pytest.raises(RuntimeError, match="expected a generator of device"):
        generator.graphsafe_set_state(torch.Generator("cpu"))
