"""Recurrent cells and networks against torch's CPU device, forward and backward."""

import pytest
import torch
from op_support import FLOATS, HALVES, INTEGERS, check_summed, flatten, numbers
from support import DEVICE, assert_same, assert_summed, synchronize
from torch.nn.utils import rnn


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


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_batches_of_gradients_of_recurrent_networks(kind):
    """They have no memory of their own."""
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, torch.float64, bidirectional=True)
        x = numbers((4, 3, 5), torch.float64).to(where).requires_grad_()
        output, _ = network(x, start(kind, h))
        batch = torch.eye(output.numel(), dtype=torch.float64, device=where)[::7].view(-1, *output.shape)
        results.append(torch.autograd.grad(output, [x, *network.parameters()], batch, is_grads_batched=True))
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=20)


def test_unusual_recurrent_networks():
    """Cases left to torch's own layers: projections, no batch, transforms, autocast, packed sequences of plain cells;
    and their errors."""
    results = []
    for where in ("cpu", DEVICE):
        torch.manual_seed(0)
        x = numbers((6, 3, 5)).to(where)
        narrow = torch.nn.LSTM(5, 4, proj_size=2).to(where)
        network, h = recurrent("LSTM", where)
        packed = rnn.pack_padded_sequence(x, [6, 4, 1])
        plain = torch.nn.RNN(5, 4).to(where)
        parameters = dict(network.named_parameters())
        slopes = torch.func.grad(lambda p: torch.func.functional_call(network, p, (x,))[0].sin().sum())(parameters)
        results.append([narrow(x)[0], plain(packed)[0].data, network(x[:, 0])[0], *slopes.values()])
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


@pytest.mark.cpu_only  # elsewhere each length has other steps
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


# ---- packed sequences

LENGTHS = [[6, 4, 1], [5, 5, 5], [1, 1, 1], [7, 1, 1]]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind, lengths):
    """Both directions of two layers from states, with gradients of all results to all inputs."""
    for dtype in FLOATS:
        results = []
        for where in ("cpu", DEVICE):
            network, h = recurrent(kind, where, dtype, num_layers=2, bidirectional=True)
            h.requires_grad_()
            x = numbers((7, 3, 5), dtype).to(where).requires_grad_()
            packed, state = network(rnn.pack_padded_sequence(x, lengths), start(kind, h))
            output, there = rnn.pad_packed_sequence(packed, padding_value=0.5, total_length=8)
            assert there.tolist() == lengths
            made = [packed.data, output, *flatten(state)]
            loss = sum((t * t.cos()).sum() for t in made)
            grads = torch.autograd.grad(loss, [x, h, *network.parameters()])
            with torch.no_grad():
                again, state = network(rnn.pack_padded_sequence(x, lengths), start(kind, h))
            results.append([*made, *grads, again.data, *flatten(state)])
        for index, (expected, actual) in enumerate(zip(*results)):
            assert_summed(actual, expected, f"{kind} {index}", factor=8)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_in_any_order(kind):
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, batch_first=True)
        x = [numbers((length, 5), seed=length).to(where).requires_grad_() for length in (2, 6, 3)]
        packed, state = network(rnn.pack_sequence(x, enforce_sorted=False), start(kind, h))
        made = [*rnn.unpack_sequence(packed), *flatten(state)]
        results.append([*made, *torch.autograd.grad(sum(t.sin().sum() for t in made), [*x, *network.parameters()])])
    for index, (expected, actual) in enumerate(zip(*results)):
        assert_summed(actual, expected, f"{kind} {index}", factor=8)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_by_one_result(kind, part):
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, bidirectional=True)
        packed, state = network(rnn.pack_padded_sequence(numbers((6, 3, 5)).to(where), [6, 3, 1]), start(kind, h))
        chosen = [packed.data[2:5], flatten(state)[0], flatten(state)[-1]][part]
        results.append(torch.autograd.grad(chosen.sin().sum(), list(network.parameters()), allow_unused=True))
    for expected, actual in zip(*results):
        assert (expected is None) == (actual is None)
        if expected is not None:
            assert_summed(actual, expected, kind, factor=5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_second_gradients_of_packed_sequences(kind):
    results = []
    for where in ("cpu", DEVICE):
        network, h = recurrent(kind, where, torch.float64, bidirectional=True)
        x = numbers((4, 3, 5), torch.float64).to(where).requires_grad_()
        packed, state = network(rnn.pack_padded_sequence(x, [4, 2, 1]), start(kind, h))
        parts = [x, *network.parameters()]
        loss = sum(t.sin().sum() for t in [packed.data, *flatten(state)])
        grads = torch.autograd.grad(loss, parts, create_graph=True)
        results.append([*grads, *torch.autograd.grad(sum(g.square().sum() for g in grads), parts)])
    for expected, actual in zip(*results):
        assert_summed(actual, expected, kind, factor=20)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_have_the_bits_of_single_ones(kind):
    """Numbers of one sequence, NaN among them, do not reach the others; first and last states are exact."""
    is_gpu = DEVICE.type == "headrace" and not torch.headrace.get_device_properties().is_host
    exact = {"rtol": 1e-6, "atol": 1e-6} if is_gpu else {"rtol": 0, "atol": 0}  # its libraries order sums by their rows
    network, h = recurrent(kind, DEVICE, bidirectional=True)
    h[:, 0, 0] = -0.0
    rows = [numbers((length, 5), seed=length).to(DEVICE) for length in (6, 4, 1)]
    rows[1][1, 2] = torch.nan
    with torch.no_grad():
        packed, state = network(rnn.pack_sequence(rows), start(kind, h))
        outputs = rnn.unpack_sequence(packed)
        for index, row in enumerate(rows):
            own = start(kind, h)
            own = tuple(t[:, index : index + 1] for t in own) if kind == "LSTM" else own[:, index : index + 1]
            output, last = network(row[:, None], own)
            assert_same(outputs[index], output[:, 0], **exact)
            for ours, expected in zip(flatten(state), flatten(last)):
                assert_same(ours[:, index], expected[:, 0], **exact)


@pytest.mark.parametrize("by_batch", [False, True])
def test_packing_of_every_dtype(by_batch):
    for dtype in [*FLOATS, *HALVES, *INTEGERS, torch.bool, torch.complex64]:
        for rest in ((), (5,), (2, 3), (2, 0)):
            x = numbers((3, 6, *rest) if by_batch else (6, 3, *rest), dtype)
            results = []
            for where in ("cpu", DEVICE):
                there = x.to(where).transpose(0, 1).contiguous().transpose(0, 1)
                if x.numel() == 0:
                    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
                        rnn.pack_padded_sequence(there, [6, 2, 2], by_batch)
                    continue
                packed = rnn.pack_padded_sequence(there, [5, 2, 2], by_batch)
                padded = rnn.pad_packed_sequence(packed, by_batch, padding_value=1, total_length=7)
                results.append([packed.data, packed.batch_sizes, *padded])
            for expected, actual in zip(*results) if results else []:
                assert_same(actual, expected)


PADDINGS = [300, -1, -300, 1.5, 1e6, -7e4, 1e300, 2**53 + 1, -(2**53) - 1, 2**63 - 1, torch.inf, torch.nan, True]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("lengths", [[3, 1], [2, 2]], ids=["gaps", "whole"])
@pytest.mark.parametrize("dtype", [*FLOATS, *HALVES, *INTEGERS, *UNSIGNED, torch.bool, torch.complex64], ids=str)
def test_paddings_are_exact_or_raise_what_cpu_raises(dtype, lengths):
    for padding in [*PADDINGS, 1j, 1 + 0j]:
        results = []
        for where in ("cpu", DEVICE):
            packed = rnn.pack_sequence([torch.ones(length, 1).to(dtype).to(where) for length in lengths])
            try:
                results.append(rnn.pad_packed_sequence(packed, padding_value=padding)[0].cpu())
            except RuntimeError as error:
                results.append(str(error).splitlines()[0])
        expected, actual = results
        if isinstance(expected, str):
            assert "without overflow" in expected and actual == expected, padding
        else:
            assert isinstance(actual, torch.Tensor), (padding, actual)
            assert_same(actual, expected, rtol=0, atol=0)


def test_paddings_that_do_not_fit_are_refused():
    wrong = {torch.int8: (300, torch.nan, "int8_t"), torch.int32: (torch.nan, torch.inf, "int")}
    wrong |= {torch.float16: (1e6, -7e4, "c10::Half"), torch.uint16: (7e4, torch.nan, "uint16_t")}
    for dtype, (*paddings, name) in wrong.items():
        packed = rnn.pack_sequence([torch.ones(length, 1, dtype=dtype, device=DEVICE) for length in (3, 1)])
        for padding in paddings:
            with pytest.raises(RuntimeError, match=f"converted to type {name} without overflow"):
                rnn.pad_packed_sequence(packed, padding_value=padding)
    packed = rnn.pack_sequence([torch.ones(length, dtype=torch.int64, device=DEVICE) for length in (2, 1)])
    assert rnn.pad_packed_sequence(packed, padding_value=2**53 + 1)[0].tolist() == [[1, 1], [1, 2**53 + 1]]


UNPACKABLE = {
    "order": lambda x: rnn.pack_padded_sequence(x, [2, 3, 1]),
    "empty sequence": lambda x: rnn.pack_padded_sequence(x, [3, 2, 0]),
    "count": lambda x: rnn.pack_padded_sequence(x, [3, 2]),
    "vector": lambda x: rnn.pack_padded_sequence(x[:, 0, 0], [3]),
    "total length": lambda x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 2, 1]), total_length=2),
}


@pytest.mark.parametrize("name", UNPACKABLE)
def test_wrong_packed_sequences_raise_what_cpu_raises(name):
    errors = []
    for where in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
            UNPACKABLE[name](numbers((6, 3, 5)).to(where))
        errors.append(str(caught.value).splitlines()[0])
    assert errors[0] == errors[1]
    packed = rnn.pack_padded_sequence(numbers((6, 3, 5)).to(DEVICE), [3, 2, 1])
    for inputs, batch, error in ((6, 3, "Expected 6, got 5"), (5, 2, r"Expected hidden size \(1, 3, 4\)")):
        with pytest.raises(RuntimeError, match=error):
            torch.nn.GRU(inputs, 4).to(DEVICE)(packed, numbers((1, batch, 4)).to(DEVICE))


@pytest.mark.skipif(DEVICE.type != "headrace", reason="about this device")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_new_lengths_of_packed_sequences_share_a_plan(kind):
    network, _ = recurrent(kind, DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    before = torch.headrace.stats()
    for length in range(4, 32):
        rows = [numbers((size, 5)).to(DEVICE) for size in (length, 1 + length * 7 % 5 % length, 1)]
        optimizer.zero_grad()
        network(rnn.pack_sequence(rows, enforce_sorted=False))[0].data.sum().backward()
        optimizer.step()
        synchronize()
    after = torch.headrace.stats()
    assert after["operations"] - before["operations"] < 28 * 80
    assert after["general_plans"] - before["general_plans"] > 10
