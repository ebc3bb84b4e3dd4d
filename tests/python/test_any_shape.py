"""Programs whose shapes never repeat: right, equal to the bit in all modes, and bounded in memory."""

import copy
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import DEVICE, DRIVER, assert_same, assert_summed
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="about this device")
IS_HOST = DRIVER == "cpu"


def general_plans() -> int:
    return torch.headrace.stats()["general_plans"]


def lengths(count: int, most: int = 300) -> list[int]:
    """Different ones in any order, the smallest among them."""
    return random.Random(7).sample(range(1, most + 1), count)


def floats(*dims: int) -> torch.Tensor:
    return torch.randn(dims, generator=torch.Generator().manual_seed(sum(dims)))


def element_wise(x: torch.Tensor) -> list[torch.Tensor]:
    """No products: each result has the same bits in every mode."""
    y = (x * 3 + 1).tanh()
    z = F.softmax(y, -1) - y.amax(0)
    shifted = torch.cat((z[1:], z[:1])) if x.shape[0] > 1 else z
    return [y, z.sum(0), shifted.cumsum(0), z.std(1), y[::2].flip(0), (y > 0).sum(1), F.layer_norm(z, z.shape[1:])]


@pytest.fixture
def mode():
    before = torch.headrace.get_mode()
    yield torch.headrace.set_mode
    torch.headrace.set_mode(before)


def test_lengths_have_the_same_bits_in_all_modes(mode):
    before = general_plans()
    for length in lengths(300):
        x = floats(length, 24)
        results = []
        for name in ("fuse", "eager", "strict"):
            mode(name)
            there = x.to(DEVICE)
            results.append([result.cpu() for result in element_wise(there)])
        for fused, eager, strict in zip(*results):
            assert torch.equal(fused, strict)
            assert torch.equal(eager, strict)
    assert general_plans() > before


def views(x: torch.Tensor) -> list[torch.Tensor]:
    """Of inputs that are not dense, that overlap or that are one element: all of any length, 0 among them."""
    pairs = x.as_strided((max(x.shape[0] - 1, 0), 2, x.shape[1]), (x.stride(0), x.stride(0), x.stride(1)))
    column = x[:, 1:2].expand(x.shape)
    return [
        x.t() * 2 + 1,
        (x[::2, 1::3] * x[::2, 0:1]).sum(0),
        (pairs + 1).cumsum(0),
        (column + x.flip(0)).tanh().sum(1),
        torch.cat((x[1:], x[:1])).sum(0),
        x.new_ones(()).expand(x.shape[0]).sum(),
    ]


def test_views_of_any_length_have_the_same_bits_in_all_modes(mode):
    """0 and 1 come before general plans exist, and after."""
    before = general_plans()
    for length in [1, 0, *range(40, 80), 0, 1, 2, 1, 0, 79]:
        x = floats(length, 24)
        results = []
        for name in ("fuse", "eager", "strict"):
            mode(name)
            results.append([result.cpu() for result in views(x.to(DEVICE))])
        for index, (fused, eager, strict) in enumerate(zip(*results)):
            assert torch.equal(fused, strict) and torch.equal(eager, strict), f"{index} of length {length}"
        for actual, expected in zip(results[0], views(x)):
            assert_summed(actual, expected, f"length {length}", factor=20)
    assert general_plans() > before


def test_dims_above_31_bits(mode):
    """Beside those of a general plan: a broadcast number has as many elements as wanted in the memory of one."""

    def check(count):
        x, step = torch.ones(1, dtype=torch.int8, device=DEVICE).expand(count), (1 << 31) + 1
        assert (x[-3:] * 2 + 1).tolist() == [3, 3, 3]
        assert (x[::step] * 3).tolist() == [3] * -(-count // step)
        assert x[step:].narrow(0, 0, 2).sum().item() == 2

    mode("fuse")
    for extra in range(6, 20):
        check((1 << 31) + extra)
    check((1 << 32) + 2)
    assert (torch.empty(1 << 32, 0, device=DEVICE) + 1).sum(0, keepdim=True).shape == (1, 0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 24)

    def forward(self, x):
        return self.lstm(x)[0]


def small_gpt() -> nn.Module:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import networks

    return networks.GPT(networks.GPTConfig(2, 64, heads=2, vocabulary=128, context=512, dropout=0.0))


# A network, and its input of a length.
NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 10)), lambda n: floats(n, 16)),
    "lstm": (Recurrent, lambda n: floats(n, 2, 16)),
    "gpt": (small_gpt, lambda n: torch.arange(n).remainder(128)[None]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_any_length_agree_in_all_modes(name, mode):
    """General plans, then specialised ones of the same lengths, then strict mode, within the bound of products.
    HEADRACE_TEST_LENGTHS: how many of the lengths up to 300."""
    torch.manual_seed(0)
    build, draw = NETWORKS[name]
    host = build().eval()
    there = copy.deepcopy(host).to(DEVICE)
    all_lengths = lengths(int(os.environ.get("HEADRACE_TEST_LENGTHS", "16")))
    before = general_plans()
    with torch.no_grad():
        expected = [host(draw(length)) for length in all_lengths]
        for setting in ("fuse", "fuse", "fuse", "fuse", "strict"):
            mode(setting)
            for length, wanted in zip(all_lengths, expected):
                assert_summed(there(draw(length).to(DEVICE)).cpu(), wanted, factor=20)
    assert general_plans() > before


BITS = """
import hashlib, sys, torch
sys.path[:0] = ["tests/python"]
from test_any_shape import DEVICE, element_wise, floats, lengths
digest = hashlib.sha256()
for length in lengths(80):
    for result in element_wise(floats(length, 24).to(DEVICE)):
        digest.update(result.cpu().contiguous().numpy().tobytes())
print(torch.headrace.stats()["general_plans"], digest.hexdigest())
"""


def test_general_plans_have_the_bits_of_compiled_ones():
    found = {}
    for setting in ("on", "off"):
        environment = os.environ | {"HEADRACE_GENERAL_PLANS": setting}
        done = subprocess.run([sys.executable, "-c", BITS], capture_output=True, text=True, env=environment, check=True)
        found[setting] = done.stdout.split()
    assert found["on"][1] == found["off"][1]
    assert int(found["on"][0]) > 20
    assert int(found["off"][0]) == 0


def gradient(device, values, fn):
    x = values.to(device).requires_grad_(True)
    y = fn(x)
    y.backward(torch.sin(torch.arange(y.numel(), dtype=torch.float32)).reshape(y.shape).to(device))
    return x.grad.cpu()


PLANES = {
    "reflected borders that meet": lambda x: F.pad(x, (3, 3, 0, 3), mode="reflect"),
    "windows that leave a rest": lambda x: F.avg_pool2d(x, 3, 3, 1),
    "largest of windows": lambda x: F.max_pool2d(x, 3, 2, 1),
    "windows as columns": lambda x: F.unfold(x[None], 2, stride=2),
}


@pytest.mark.parametrize("name", PLANES)
def test_gradients_of_planes_of_any_size(name):
    for size in (40, 64, 33, 21, 16, 12, 9, 8, 7, 6, 5, 31, 30, 29):
        values = torch.cos(torch.arange(2 * 8 * size, dtype=torch.float32)).reshape(2, 8, size)
        ours, theirs = (gradient(device, values, PLANES[name]) for device in (DEVICE, "cpu"))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5, msg=lambda text: f"{name}, {size}: {text}")


def test_positions_beyond_their_table():
    """The range of counted positions is known on the host: that of each length, not of the one before."""
    table = torch.randn(64, 8, generator=torch.Generator().manual_seed(5))
    there = table.to(DEVICE)
    before = general_plans()
    for length in (40, 36, 50, 33, 45, 38, 47, 41):
        assert_same((F.embedding(torch.arange(length, device=DEVICE), there) * 2).cpu(), table[:length] * 2)
    assert general_plans() > before
    with pytest.raises(IndexError):
        (F.embedding(torch.arange(70, device=DEVICE), there) * 2).cpu()
    assert_same(F.embedding(torch.arange(44, device=DEVICE), there) * 2, table[:44] * 2)


@pytest.mark.parametrize("dynamic", [True, None])
def test_compiled_functions_use_general_plans(dynamic):
    @torch.compile(backend="headrace", dynamic=dynamic)
    def compiled(x):
        return (x * 2).relu().sum(0) / x.shape[0]

    before = general_plans()
    first = 150 if dynamic else 180  # new lengths each time
    for length in range(first, first + 30):
        x = floats(length, 24)
        assert_summed(compiled(x.to(DEVICE)), (x * 2).relu().sum(0) / length)
    assert general_plans() >= before + 15


@pytest.mark.parametrize("with_mask", [False, True])
def test_compiled_attention_over_a_growing_cache(with_mask):
    """One graph for all lengths: sizes are symbols while torch chooses the kernel."""
    torch._dynamo.reset()
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return torch._dynamo.lookup_backend("headrace")(module, inputs)

    @torch.compile(backend=backend, dynamic=True)
    def attend(query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    cache = floats(2, 4, 5, 16)
    for length in range(6, 24):
        query = floats(2, 4, 1, 16) + length
        cache = torch.cat((cache, query), 2)
        mask = floats(1, length) > 0 if with_mask else None
        given = [x.to(DEVICE) if x is not None else None for x in (query, cache, cache * 2, mask)]
        assert_summed(attend(*given), F.scaled_dot_product_attention(query, cache, cache * 2, mask))
    assert len(graphs) == 1


@pytest.mark.skipif(not IS_HOST, reason="other devices keep a program for each shape")
def test_programs_are_counted_and_freed():
    for length in range(150, 190):
        element_wise(floats(length, 24).to(DEVICE))[1].sum().item()
    torch.headrace.synchronize()
    assert torch.headrace.memory_stats()["program_bytes"] > 0
    torch.headrace.empty_cache()
    torch.headrace.empty_cache()
    assert torch.headrace.memory_stats()["program_bytes"] == 0
    assert torch.headrace.stats()["cache_entries"] == 0
    x = floats(160, 24)
    assert_same(element_wise(x.to(DEVICE))[0], element_wise(x)[0])


def held() -> tuple[int, int]:
    return torch.headrace.memory_stats()["program_bytes"], torch.headrace.stats()["cache_entries"]


SIZES = [(h, w) for h in range(64, 161, 16) for w in range(64, 161, 16)]
TRAINED = {  # case of the benchmark: recorded operations, shapes, the least of them that get a program of their own
    "mlp-train": (29, range(240, 160, -1), 30),
    "gpt-2x64-train": (86, range(300, 240, -2), 8),
    "unet-train": (117, random.Random(1).sample(SIZES, 30), 5),
}


@pytest.mark.skipif(not IS_HOST, reason="other devices keep a program for each shape")
@pytest.mark.parametrize("name", TRAINED)
def test_a_program_that_repeats_takes_little_memory(name):
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    import shape_cases

    torch.headrace.empty_cache()
    torch.headrace.empty_cache()
    operations, shapes, least = TRAINED[name]
    case = next(case for case in shape_cases.CASES if case.name == name)
    train = case.prepare(DEVICE)
    for shape in [*shapes, *shapes]:
        train(case.draw(shape)).cpu()
    bytes_before, entries_before = held()
    for shape in shapes:  # for the third time: each gets a program of its own, unless it has one
        train(case.draw(shape)).cpu()
    entries = held()[1] - entries_before
    assert entries >= least
    assert (held()[0] - bytes_before) / entries < 65536 + 300 * operations


# Recorded operations, about.
COMPILED = {"mlp-train": 29, "gpt-2x64-train": 86, "boxes-train": 63, "edges-train": 150, "packed-train": 41}


@pytest.mark.skipif(not IS_HOST, reason="the bound is that of a host")
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_program_takes_little_memory(name):
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    import shape_cases

    torch.headrace.empty_cache()
    torch.headrace.empty_cache()
    bytes_before, entries_before = held()
    case = next(case for case in shape_cases.CASES if case.name == name)
    train = case.prepare(DEVICE)
    for _ in range(3):
        train(case.draw(case.shapes[0])).cpu()
    entries = held()[1] - entries_before
    assert entries >= 2
    assert (held()[0] - bytes_before) / entries < 65536 + 300 * COMPILED[name]


# Records of the program that a network's first training step ends with.
FIRST_STEPS = {"yolo": 714, "diffusion": 732, "whisper": 418}


@pytest.mark.skipif(not IS_HOST, reason="the bound is that of a host")
@pytest.mark.parametrize("name", FIRST_STEPS)
def test_the_program_of_a_first_training_step_takes_little_memory(name):
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import gallery

    network = gallery.network(name)
    batch = [x.to(DEVICE) for x in network.batch(torch.Generator().manual_seed(1), False)]
    model = network.build(False).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=network.RATE)
    torch.headrace.synchronize()
    torch.headrace.empty_cache()
    torch.headrace.empty_cache()
    loss = network.loss(model, *batch)
    bytes_before, entries_before = held()  # a part of Whisper's loss is a program before
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.headrace.synchronize()
    assert held()[1] - entries_before == 1
    assert held()[0] - bytes_before < 65536 + 300 * FIRST_STEPS[name]


MEMORY = """
import os, sys, torch
import headrace.torch
from torch import nn
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to("headrace")
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
def step(shape):
    net(torch.ones(*shape, 16, device="headrace")).square().mean().backward()
    torch.headrace.synchronize()
shapes = [(batch, length) for length in range(20, 60) for batch in range(2, 22)]
for shape in shapes[:200]:
    step(shape)
before = resident()
for shape in shapes[200:]:
    step(shape)
print(before, resident(), torch.headrace.memory_stats()["program_bytes"])
"""


@pytest.mark.skipif(not IS_HOST, reason="other devices keep a program for each shape")
def test_memory_stays_with_many_shapes():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    before, after, programs = map(int, done.stdout.split())
    assert after < 1.1 * before, f"{before} bytes after 200 shapes, {after} after 800, programs {programs}"


# ---- what people run


def small_model(name: str, transformers):
    torch.manual_seed(0)
    common = dict(vocab_size=97, bos_token_id=1, eos_token_id=96, pad_token_id=0)
    if name == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **common)
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, **common,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


HOW = {
    "greedy": {},
    "sampling": {"do_sample": True, "top_k": 12, "temperature": 0.9},
    "beams": {"num_beams": 3},
    "static": {"cache_implementation": "static"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation(name, how, monkeypatch):
    transformers = pytest.importorskip("transformers")
    if (name, how) == ("gpt2", "static"):
        pytest.skip("one model with a static cache is enough")
    host = small_model(name, transformers)
    there = copy.deepcopy(host).to(DEVICE)
    if how == "sampling":  # both devices draw the same token: numbers of the host
        draw = torch.multinomial
        monkeypatch.setattr(torch, "multinomial", lambda p, *args, **kw: draw(p.cpu(), *args, **kw).to(p.device))
    for length in (3, 7, 12, 5):
        tokens = torch.randint(2, 96, (2, length), generator=torch.Generator().manual_seed(length))
        found = []
        for model in (host, there):
            torch.manual_seed(length)
            mask = torch.ones_like(tokens).to(model.device)
            result = model.generate(tokens.to(model.device), attention_mask=mask, max_new_tokens=12, **HOW[how])
            found.append(result.cpu())
        assert torch.equal(*found)


# Sliding windows, states instead of a cache, an encoder, experts, biases of distance: a config and a model each.
FAMILIES = {
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": 8}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"sliding_window": 8, "head_dim": 8}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4}),
    "mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 8}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}),
}


def model_of_family(name: str, transformers) -> nn.Module:
    kind, model, options = FAMILIES[name]
    options = options | dict(vocab_size=97, bos_token_id=1, eos_token_id=96, pad_token_id=0, num_hidden_layers=2)
    options |= {"num_heads": 4, "decoder_start_token_id": 0} if name == "t5" else {"hidden_size": 32}
    if name not in ("t5", "bloom", "mamba"):
        options |= dict(intermediate_size=64, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, kind)(**options)).eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_generation_by_families_of_models(name):
    """Several prompts at once, with padding at the left."""
    transformers = pytest.importorskip("transformers")
    host = model_of_family(name, transformers)
    there = copy.deepcopy(host).to(DEVICE)
    for length, options in ((9, {}), (4, {"num_beams": 3}), (13, {}), (6, {"use_cache": False})):
        tokens = torch.randint(2, 96, (3, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(tokens)
        mask[1, : length // 2], mask[2, :1] = 0, 0
        tokens = tokens.masked_fill(mask == 0, 0)
        found = [
            model.generate(tokens.to(model.device), attention_mask=mask.to(model.device), max_new_tokens=10, **options)
            for model in (host, there)
        ]
        assert torch.equal(found[0], found[1].cpu())


def trained(model: nn.Module, loss, device) -> list[torch.Tensor]:
    """The parameters after a step for each length."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for length in lengths(24, 40):
        optimizer.zero_grad()
        loss(model, length, device).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def check_training(model: nn.Module, loss) -> None:
    for ours, expected in zip(trained(model, loss, DEVICE), trained(model, loss, "cpu")):
        assert_summed(ours, expected, factor=20)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 12, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def test_training_with_padding():
    def loss(model, length, device):
        x, target = floats(3, length, 8).to(device), torch.arange(3 * length).view(3, length).remainder(5)
        target[1, length // 2 :] = -100
        return F.cross_entropy(model(x).transpose(1, 2), target.to(device))

    torch.manual_seed(1)
    check_training(Tagger(), loss)


def test_training_with_packed_sequences():
    def loss(model, length, device):
        sizes = [length, max(1, length // 2), max(1, length // 3)]
        rows = [floats(size, 8).to(device) for size in sizes]
        packed = nn.utils.rnn.pack_sequence(rows)
        out, _ = nn.utils.rnn.pad_packed_sequence(model.rnn(packed)[0], batch_first=True)
        return model.head(out).square().mean()

    torch.manual_seed(2)
    check_training(Tagger(), loss)


@pytest.mark.skipif(not IS_HOST, reason="fills no memory of a GPU")
def test_lengths_go_on_behind_errors():
    """An index out of range, a tensor that is too large, other dims: the steps between them are those of the host."""
    torch.manual_seed(5)
    models = [Tagger()]
    models.append(copy.deepcopy(models[0]).to(DEVICE))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    table = torch.ones(7, 8, device=DEVICE)
    for step, length in enumerate(lengths(24, 40)):
        for model, optimizer, device in zip(models, optimizers, ("cpu", DEVICE)):
            optimizer.zero_grad()
            model(floats(3, length, 8).to(device)).square().mean().backward()
            optimizer.step()
        if step % 3 == 0:
            with pytest.raises(IndexError):
                models[1](F.embedding(torch.arange(length + 7, device=DEVICE)[None], table)).sum().item()
        elif step % 3 == 1:
            with pytest.raises(RuntimeError, match="bytes"):
                (models[1](floats(1, length, 8).to(DEVICE)).sum() + torch.ones(1 << 45, device=DEVICE)).sum().item()
        else:
            with pytest.raises(RuntimeError):
                models[1](floats(1, length, 9).to(DEVICE))
    for ours, expected in zip(models[1].parameters(), models[0].parameters()):
        assert_summed(ours.detach().cpu(), expected.detach(), factor=20)


class Detector(nn.Module):
    """Scores and boxes of a changing number of regions, and those that overlap no better one."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(6, 16)
        self.score, self.box = nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, regions):
        x = self.features(regions).relu()
        corner, size = self.box(x).split(2, 1)
        return self.score(x).squeeze(1), torch.cat((corner, corner + size.exp()), 1)


def best_boxes(scores: torch.Tensor, boxes: torch.Tensor, most: float = 0.3) -> torch.Tensor:
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel() > 0:
        first, order = order[0], order[1:]
        kept.append(first)
        low = torch.maximum(boxes[first, :2], boxes[order, :2])
        high = torch.minimum(boxes[first, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        areas = [(b[..., 2:] - b[..., :2]).prod(-1) for b in (boxes[first], boxes[order])]
        order = order[shared / (areas[0] + areas[1] - shared) <= most]
    return torch.stack(kept)


def test_a_changing_number_of_boxes():
    torch.manual_seed(3)
    model = Detector().eval()
    there = copy.deepcopy(model).to(DEVICE)
    with torch.no_grad():
        for count in lengths(12, 40):
            regions = floats(count, 6)
            scores, boxes = model(regions)
            ours = there(regions.to(DEVICE))
            assert_summed(ours[0], scores)
            assert_summed(ours[1], boxes)
            assert torch.equal(best_boxes(scores.to(DEVICE), boxes.to(DEVICE)).cpu(), best_boxes(scores, boxes))


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(16, 8), nn.GRUCell(8, 8)

    def forward(self, nodes, edges):
        for _ in range(2):
            sent = self.message(torch.cat((nodes[edges[0]], nodes[edges[1]]), 1)).relu()
            nodes = self.update(torch.zeros_like(nodes).index_add(0, edges[1], sent), nodes)
        return nodes


def test_a_graph_with_changing_edges():
    def loss(model, length, device):
        nodes, draw = 10 + length % 7, torch.Generator().manual_seed(length)
        edges = torch.randint(0, nodes, (2, 3 * length), generator=draw)
        return model(floats(nodes, 8).to(device), edges.to(device)).square().mean()

    torch.manual_seed(4)
    check_training(GraphNetwork(), loss)
