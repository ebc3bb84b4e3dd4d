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


SIZES = [(1, 1, 1), (1, 3, 20), (5, 1, 33), (4, 7, 65), (2, 40, 130), (3, 4, 200)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_of_every_size(kind, sizes):
    """Lengths, batches and widths at the edges of blocks, in both directions, with weights that are read twice."""
    length, batch, hidden = sizes
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        network = getattr(torch.nn, kind)(5, hidden, bidirectional=True).to(where)
        x = numbers((length, batch, 5)).to(where).requires_grad_()
        made = []
        for _ in range(3):
            output, state = network(x)
            made += [output, *flatten(state)]
        with torch.no_grad():
            made += [network(x)[0], network(x)[0]]
        sum((t * t.cos()).sum() for t in made[:6]).backward()
        results.append([*made, x.grad, *(p.grad for p in network.parameters())])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=8)


def pick(rows, columns):
    """A matrix with one power of two in each column, and at most one in each row: products with it are exact."""
    weight = torch.zeros(rows, columns)
    for column in range(columns):
        weight[column * (rows // columns) + column % (rows // columns), column] = (-2.0, 0.5, 0.25)[column % 3]
    return weight


def by_cells(network, x, h, c):
    """The layer as torch's cells, without biases; x are the gates."""
    weight, outputs, zeros = network.weight_hh_l0, [], torch.zeros(network.weight_hh_l0.size(0), device=x.device)
    for gates in x:
        hidden = h @ weight.t()
        if c is not None:
            h, c, _ = torch.ops.aten._thnn_fused_lstm_cell(gates, hidden, c)
        else:
            h, _ = torch.ops.aten._thnn_fused_gru_cell(gates, hidden, h, zeros, zeros)
        outputs.append(h)
    return torch.stack(outputs), h, c


@pytest.mark.parametrize("hidden", [5, 16, 37])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_have_the_bits_of_cells(kind, hidden):
    """If sums of products have one term each, layers have the bits of single products and cells. The gates are the
    inputs, so their gradient is that of the gates."""
    width = hidden * (4 if kind == "LSTM" else 3)
    network = getattr(torch.nn, kind)(width, hidden, bias=False)
    with torch.no_grad():
        network.weight_ih_l0.copy_(torch.eye(width))
        network.weight_hh_l0.copy_(pick(width, hidden))
    network.to(DEVICE)
    results = []
    for layer in (True, False):
        x = numbers((6, 3, width)).to(DEVICE).requires_grad_()
        h = numbers((3, hidden), seed=5).to(DEVICE).requires_grad_()
        c = (h * 0.5).detach().requires_grad_() if kind == "LSTM" else None
        if layer:
            output, state = network(x, (h[None], c[None]) if kind == "LSTM" else h[None])
            made = [output, *(t[0] for t in flatten(state))]
        else:
            made = [t for t in by_cells(network, x, h, c) if t is not None]
        leaves = [t for t in (x, h, c) if t is not None]
        used = made if kind == "LSTM" else made[1:]  # torch adds the three gradients of a GRU's state in another order
        results.append([*made, *torch.autograd.grad(sum((t * t).sum() for t in used), leaves)])
    for index, (actual, expected) in enumerate(zip(*results)):
        assert torch.equal(actual.cpu(), expected.cpu()), f"{kind} {index}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_long_recurrent_layers(kind, dtype):
    """More steps than one operation has, in both directions."""
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        network = getattr(torch.nn, kind)(1, 2, bidirectional=True, dtype=dtype).to(where)
        x = numbers((4100, 1, 1), dtype).to(where).requires_grad_()
        h = numbers((2, 1, 2), dtype, seed=3).to(where).requires_grad_()
        output, state = network(x, start(kind, h))
        made = [output, *flatten(state)]
        leaves = [x, h, *network.parameters()]
        results.append([*made, *torch.autograd.grad(sum((t * t.cos()).sum() for t in made), leaves)])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=50)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_new_lengths_of_recurrent_layers_share_a_plan(kind):
    network, _ = recurrent(kind, DEVICE)
    before = torch.headrace.stats()
    for length in range(2, 30):
        network(numbers((length, 3, 5)).to(DEVICE))[0].sum().backward()
        synchronize()
    after = torch.headrace.stats()
    assert after["operations"] - before["operations"] < 28 * 40
    assert after["general_plans"] > before["general_plans"]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_takes_few_products(kind):
    """One for the inputs of all steps, and on the host one for the steps (elsewhere one for each); so in the gradients,
    with one for each of both weights."""
    network, _ = recurrent(kind, DEVICE)
    x = numbers((6, 3, 5)).to(DEVICE)
    network(x)[0].sum().backward()
    synchronize()
    before = torch.headrace.stats()["library_calls"]
    network(x)[0].sum().backward()
    synchronize()
    assert torch.headrace.stats()["library_calls"] - before <= 6 + 6 + 3
