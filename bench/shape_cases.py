"""Programs whose shapes change from call to call: lengths, batches, images, growing caches."""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import networks  # noqa: E402
from gallery import graph as graphs  # noqa: E402

VOCABULARY = 512
Call = Callable[[], Tensor]


@dataclass(frozen=True)
class ShapeCase:
    """`prepare(device)` returns a function that runs one input and returns its result; `draw` makes the input of a
    shape on the host and is not timed. `shapes` stand in the order of the run, all different. `warm` is another one."""

    name: str
    title: str
    prepare: Callable[[torch.device], Callable[..., Tensor]]
    shapes: list
    warm: object
    needs: str = ""  # a package
    draw: Callable = lambda shape: shape


def drawn(values, count: int) -> list:
    values = list(values)
    random.Random(0).shuffle(values)
    return values[:count]


# ---- calls of a network, training steps


def tokens_of(length: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(length))


def floats_of(dims: tuple) -> Tensor:
    return torch.rand(dims, generator=torch.Generator().manual_seed(sum(dims)))


def calls(build: Callable[[], nn.Module], loss: Callable | None) -> Callable:
    """Inference without `loss`, else a training step with Adam, whose result is the loss."""

    def prepare(device):
        torch.manual_seed(0)
        model = build().to(device).train(loss is not None)
        if loss is None:

            @torch.no_grad()
            def infer(x):
                return model(x.to(device))

            return infer
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def train(x):
            x = x.to(device)
            optimizer.zero_grad()
            found = loss(model(x), x)
            found.backward()
            optimizer.step()
            return found.detach()

        return train

    return prepare


class Recurrent(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.lstm = nn.LSTM(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def gpt(layers: int, width: int) -> Callable[[], nn.Module]:
    config = networks.GPTConfig(layers, width, heads=width // 32, vocabulary=VOCABULARY, context=512, dropout=0.0)
    return lambda: networks.GPT(config)


def unet() -> nn.Module:
    return networks.UNet(width=16)


def next_token_loss(scores: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(scores[0, :-1], tokens[0, 1:])


def square_loss(result: Tensor, _: Tensor) -> Tensor:
    return result.square().mean()


# ---- generation


class CachedGPT(networks.GPT):
    """A decoder that keeps keys and values of the tokens before, each call's appended by `cat`."""

    def step(self, token: Tensor, position: int, cache: list) -> Tensor:
        x = self.tokens(token) + self.positions.weight[position]
        for index, block in enumerate(self.blocks):
            batch, length, width = x.shape
            heads = (batch, length, block.heads, width // block.heads)
            query, key, value = (part.view(heads).transpose(1, 2) for part in block.qkv(block.norm1(x)).split(width, 2))
            if cache[index] is not None:
                key, value = (torch.cat((old, new), 2) for old, new in zip(cache[index], (key, value)))
            cache[index] = (key, value)
            y = F.scaled_dot_product_attention(query, key, value)
            x = x + block.projection(y.transpose(1, 2).reshape(x.shape))
            x = x + block.mlp(block.norm2(x))
        return self.head(self.norm(x))


def generation(layers: int, width: int, context: int) -> Callable:
    """A shape is a number of tokens; each token has a cache of a length of its own."""

    def prepare(device):
        torch.manual_seed(0)
        config = networks.GPTConfig(
            layers, width, heads=width // 32, vocabulary=VOCABULARY, context=context, dropout=0.0
        )
        model = CachedGPT(config).to(device).eval()

        @torch.no_grad()
        def generate(count: int) -> Tensor:
            token, cache = torch.zeros(1, 1, dtype=torch.int64, device=device), [None] * layers
            for position in range(count):
                token = model.step(token, position, cache)[:, -1].argmax(-1, keepdim=True)
                token.item()  # a program looks at each token
            return token

        return generate

    return prepare


GENERATION = {
    "": {},
    "beams": {"num_beams": 3},
    "static": {"cache_implementation": "static", "disable_compile": True},
}


def transformers_generation(name: str, layers: int, width: int, how: str) -> Callable:
    def prepare(device):
        import transformers

        torch.manual_seed(0)
        common = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
        if name == "gpt2":
            config = transformers.GPT2Config(
                n_layer=layers, n_embd=width, n_head=width // 32, n_positions=512, **common
            )
            model = transformers.GPT2LMHeadModel(config)
        else:
            config = transformers.LlamaConfig(
                hidden_size=width,
                intermediate_size=3 * width,
                num_hidden_layers=layers,
                num_attention_heads=width // 32,
                max_position_embeddings=512,
                **common,
            )
            model = transformers.LlamaForCausalLM(config)
        model = model.to(device).eval()
        options = GENERATION[how]

        @torch.no_grad()
        def generate(count: int) -> Tensor:
            prompt = tokens_of(4).to(device)
            return model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=count, **options
            )

        return generate

    return prepare


# ---- parts of a batch that change: boxes, edges, lengths of sequences


def steps(build: Callable[[], nn.Module], loss: Callable) -> Callable:
    """Training steps with Adam on a tuple of tensors that are drawn on the host."""

    def prepare(device):
        torch.manual_seed(0)
        model = build().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def train(batch):
            batch = tuple(part.to(device) for part in batch)
            optimizer.zero_grad()
            found = loss(model, *batch)
            found.backward()
            optimizer.step()
            return found.detach()

        return train

    return prepare


class BoxedDetector(nn.Module):
    """The second stage of a detector: features of an image at 7 x 7 points of each box, its class and its border."""

    def __init__(self, classes: int = 4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1)
        )
        self.hidden = nn.Sequential(nn.Linear(32 * 49, 128), nn.ReLU())
        self.kind, self.border = nn.Linear(128, classes), nn.Linear(128, 4)

    def forward(self, image: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(image)[0]
        along = torch.linspace(0, 1, 7, device=boxes.device)
        low, high = boxes[:, :2, None], boxes[:, 2:, None]
        x, y = ((low + (high - low) * along) * (features.shape[1] - 1)).long().unbind(1)
        picked = features[:, y[:, :, None], x[:, None, :]]
        hidden = self.hidden(picked.transpose(0, 1).flatten(1))
        return self.kind(hidden), self.border(hidden)


def image_with_boxes(count: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    corners = torch.rand(count, 2, 2, generator=generator)
    boxes = torch.cat((corners.amin(1), corners.amax(1)), 1)
    return torch.rand(1, 3, 96, 96, generator=generator), boxes, torch.randint(4, (count,), generator=generator)


def box_loss(model: nn.Module, image: Tensor, boxes: Tensor, kinds: Tensor) -> Tensor:
    kind, border = model(image, boxes)
    return F.cross_entropy(kind, kinds) + F.smooth_l1_loss(border, boxes)


def graph_with_edges(count: int) -> tuple[Tensor, ...]:
    """The edges of 300 nodes, as many as wanted."""
    features, edges, community = graphs.make_graph(torch.Generator().manual_seed(1), 300, 12)
    return features, edges[:, -count:].contiguous(), community


def lengths_of_four(number: int) -> tuple[int, ...]:
    return tuple(sorted(random.Random(number).sample(range(1, 61), 4), reverse=True))


def sequences(lengths: tuple[int, ...]) -> list[Tensor]:
    return [floats_of((length, 64)) for length in lengths]


def packed_recurrent(device: torch.device) -> Callable:
    """Training steps of an LSTM on packed sequences."""
    torch.manual_seed(0)
    lstm = nn.LSTM(64, 64).to(device)
    optimizer = torch.optim.Adam(lstm.parameters(), lr=1e-4)

    def train(batch):
        packed = nn.utils.rnn.pack_sequence([part.to(device) for part in batch])
        optimizer.zero_grad()
        found = lstm(packed)[0].data.square().mean()
        found.backward()
        optimizer.step()
        return found.detach()

    return train


# ---- the table


def even_images() -> Iterator[tuple]:
    return ((h, w) for h in range(24, 161, 4) for w in range(24, 161, 4))


CASES = [
    ShapeCase(
        "mlp-train",
        "MLP 64-128-128-10, train, batch 1 to 300",
        calls(mlp, square_loss),
        drawn(range(1, 301), 300),
        301,
        draw=lambda n: floats_of((n, 64)),
    )
]
for kind, loss in (("infer", None), ("train", True)):
    CASES += [
        ShapeCase(
            f"lstm-{kind}",
            f"LSTM 128, batch 4, length 1 to 300, {kind}",
            calls(lambda: Recurrent(128), loss and square_loss),
            drawn(range(1, 301), 40),
            301,
            draw=lambda n: floats_of((n, 4, 128)),
        ),
        *(
            ShapeCase(
                f"gpt-{layers}x{width}-{kind}",
                f"GPT {layers} x {width}, length 2 to 300, {kind}",
                calls(gpt(layers, width), loss and next_token_loss),
                drawn(range(2, 301), count),
                301,
                draw=tokens_of,
            )
            for layers, width, count in ((2, 64, 100), (4, 256, 60))
        ),
        ShapeCase(
            f"unet-{kind}",
            f"U-Net (16 channels), images of 24 to 160, {kind}",
            calls(unet, loss and square_loss),
            drawn(even_images(), 30),
            (164, 164),
            draw=lambda shape: floats_of((1, 3, *shape)),
        ),
    ]
CASES += [
    ShapeCase(
        f"cache-{layers}x{width}",
        f"generation, cache by cat, GPT {layers} x {width}, {count:,} tokens",
        generation(layers, width, max(count, 512)),
        [count],
        2,
    )
    for layers, width, count in ((2, 64, 200), (4, 256, 200), (2, 256, 2000))
]
CASES += [
    ShapeCase(
        f"{name}-{layers}x{width}{'-' if how else ''}{how}",
        f"transformers' {title} {layers} x {width}, generate 100 tokens{note}",
        transformers_generation(name, layers, width, how),
        [100],
        2,
        needs="transformers",
    )
    for name, title, layers, width, how, note in (
        ("gpt2", "GPT-2", 4, 256, "", ""),
        ("gpt2", "GPT-2", 4, 256, "beams", ", three beams"),
        ("llama", "Llama", 2, 64, "", ""),
        ("llama", "Llama", 2, 64, "static", ", static cache"),
        ("llama", "Llama", 2, 64, "beams", ", three beams"),
    )
]
CASES += [
    ShapeCase(
        "boxes-train",
        "detector, 1 to 150 boxes in an image, train",
        steps(BoxedDetector, box_loss),
        drawn(range(1, 151), 60),
        151,
        draw=image_with_boxes,
    ),
    ShapeCase(
        "edges-train",
        "graph attention network, 300 nodes, 600 to 3,900 edges, train",
        steps(graphs.build, graphs.loss),
        drawn(range(600, 3900), 40),
        3900,
        draw=graph_with_edges,
    ),
    ShapeCase(
        "packed-train",
        "LSTM 64, four packed sequences of 1 to 60, train",
        packed_recurrent,
        [lengths_of_four(number) for number in range(40)],
        lengths_of_four(99),
        draw=sequences,
    ),
]
