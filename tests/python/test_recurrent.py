"""Recurrent cells and networks against torch's CPU device, forward and backward."""

import pytest
import torch
from op_support import FLOATS, check_summed, flatten, numbers
from support import DEVICE, assert_summed, synchronize


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(kind):
    for dtype in FLOATS:
        for bias in (True, False):
            torch.manual_seed(0)
            cell = getattr(torch.nn, kind)(5, 4, bias=bias, dtype=dtype)
            names = [name for name, _ in cell.named_parameters()]

            def function(x, *parameters):
                state = torch.func.functional_call(cell, dict(zip(names, parameters)), (x,))
                return torch.func.functional_call(cell, dict(zip(names, parameters)), (x * 2, state))

            check_summed(function, numbers((3, 5), dtype), *(p.detach() for p in cell.parameters()), factor=3)


RECURRENT = [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True, "bias": False}]


@pytest.mark.parametrize("options", RECURRENT, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks(kind, options):
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        network = getattr(torch.nn, kind)(5, 4, **options).to(where)
        x = numbers((6, 3, 5)).to(where).requires_grad_()
        output, state = network(x)
        made = [output, *flatten(state)]
        sum((t * t.cos()).sum() for t in made).backward()
        results.append([*made, x.grad, *(p.grad for p in network.parameters())])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=5)


def recurrent(kind, where, dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    network = getattr(torch.nn, kind)(5, 4, dtype=dtype, **options).to(where)
    first = numbers((options.get("num_layers", 1) * (1 + options.get("bidirectional", False)), 3, 4), dtype, seed=7)
    return network, first.to(where)


def start(kind, h):
    return (h, h.flip(1) * 0.5) if kind == "LSTM" else h


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_from_a_state(kind, dtype):
    """Both directions of two layers, gradients of the first states, strided inputs, outputs that are changed in
    place."""
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, dtype, num_layers=2, bidirectional=True, batch_first=True)
        h = h.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        x = numbers((3, 5, 6), dtype).to(where).transpose(1, 2).requires_grad_()
        output, state = network(x, start(kind, h))
        made = [output, *flatten(state)]
        loss = sum((t * t.cos()).sum() for t in made[1:]) + (output.mul_(2) * output.detach().sin()).sum()
        grads = torch.autograd.grad(loss, [x, h, *network.parameters()])
        with torch.no_grad():
            again = network(x, start(kind, h))
        results.append([*made, *grads, again[0], *flatten(again[1])])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=8)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_by_one_result(kind, part):
    """Gradients if only the output, the last state or the last cell is used, or only one step."""
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where)
        x = numbers((6, 3, 5)).to(where)
        output, state = network(x, start(kind, h))
        chosen = [output[2], flatten(state)[0], flatten(state)[-1]][part]
        results.append(torch.autograd.grad(chosen.sin().sum(), list(network.parameters())))
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_second_gradients_of_recurrent_networks(kind):
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, torch.float64, bidirectional=True)
        x = numbers((4, 3, 5), torch.float64).to(where).requires_grad_()
        output, _ = network(x, start(kind, h))
        parts = [x, *network.parameters()]
        grads = torch.autograd.grad(output.sin().sum(), parts, create_graph=True)
        results.append([*grads, *torch.autograd.grad(sum(g.square().sum() for g in grads), parts)])
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=20)


def test_unusual_recurrent_networks():
    """Cases left to torch's own layers: projections, packed sequences, no batch, transforms, autocast; and their
    errors."""
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        x = numbers((6, 3, 5)).to(where)
        narrow = torch.nn.LSTM(5, 4, proj_size=2).to(where)
        network, h = recurrent("LSTM", where)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 4, 1])
        parameters = dict(network.named_parameters())
        slopes = torch.func.grad(lambda p: torch.func.functional_call(network, p, (x,))[0].sin().sum())(parameters)
        results.append([narrow(x)[0], network(packed)[0].data, network(x[:, 0])[0], *slopes.values()])
        with pytest.raises(RuntimeError, match="Expected hidden|must be equal|Expected"):
            network(x, (h[:, :2], h[:, :2]))
        if where == DEVICE:  # torch's CPU device has no such layer on processors without AVX-512
            with torch.autocast(x.device.type, torch.bfloat16):
                assert torch.isfinite(network(x)[0]).all()
    for expected, actual in zip(*results):
        assert_summed(actual, expected, "unusual", factor=5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_takes_few_products(kind):
    """One for the inputs of all steps, one for each step's state; and for the gradients of both weights one each."""
    network, _ = recurrent(kind, DEVICE)
    x = numbers((6, 3, 5)).to(DEVICE)
    network(x)[0].sum().backward()
    synchronize()
    before = torch.headrace.stats()["library_calls"]
    network(x)[0].sum().backward()
    synchronize()
    assert torch.headrace.stats()["library_calls"] - before <= 6 + 6 + 3
