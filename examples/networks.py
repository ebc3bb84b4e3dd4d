"""The networks that the demonstration, the benchmarks and the tests train: plain torch modules.

CASES has one entry for each. An entry builds the network in its published size or in a small one that still uses every
operator, makes batches on the CPU from a generator (so that two devices see the same numbers), and trains one step:

    case = CASES["unet"]
    model = case.build(small=True, dropout=0.0)
    optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters))
    losses = case.step(model, optimizers, case.batch(4, small=True, generator=torch.Generator().manual_seed(0)))

A step returns its losses as tensors without gradient and reads no value back; the caller may call item().
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---- the convolutional network of the demonstration


class ConvNet(nn.Module):
    """Three times 5x5 convolution, ReLU, 2x2 max pooling; then n -> n/2 -> n/4 -> classes. Gives log-probabilities."""

    def __init__(self, in_channels=1, dim=28, classes=10, dropout=0.3, channels=(20, 50, 100)):
        super().__init__()
        layers = []
        for inputs, outputs in zip((in_channels, *channels), channels):
            layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        n = (dim // 8) ** 2 * channels[-1]
        self.classifier = nn.Sequential(
            nn.Linear(n, n // 2),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(n // 2, n // 4),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(n // 4, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return F.log_softmax(self.classifier(self.features(images).flatten(1)), dim=1)


# ---- a multilayer perceptron


class SoftshrinkMLP(nn.Module):
    """784-256-256-256-10 with Softshrink between. Gives log-probabilities.

    Softshrink is 0 between -0.5 and 0.5, the range of almost all values with torch's default weights.
    """

    def __init__(self, sizes=(784, 256, 256, 256, 10)):
        super().__init__()
        layers = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layers += [nn.Linear(inputs, outputs), nn.Softshrink()]
        self.layers = nn.Sequential(*layers[:-1])
        for layer in self.layers[::2]:
            nn.init.xavier_normal_(layer.weight, gain=2**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.layers(x), dim=1)


# ---- ResNet-50 (He et al. 2015, with the stride in the 3x3 convolution)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution around a shortcut, which is projected if the shape changes."""

    expansion = 4

    def __init__(self, inputs, width, stride=1):
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet of bottleneck blocks; the default is ResNet-50. Gives scores."""

    def __init__(self, blocks=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for index, count in enumerate(blocks):
            for block in range(count):
                stages.append(Bottleneck(inputs, width << index, stride=2 if index > 0 and block == 0 else 1))
                inputs = (width << index) * Bottleneck.expansion
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pool(self.stages(self.stem(images))).flatten(1))


# ---- GPT-2 small (Radford et al. 2019), with an output layer of its own


@dataclass(frozen=True)
class GPTConfig:
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    context: int = 1024
    dropout: float = 0.1


class GPTBlock(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        width = config.width
        self.heads, self.p = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
            nn.Dropout(config.dropout),
        )
        self.dropout = nn.Dropout(config.dropout)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=p, is_causal=True)
        return self.dropout(self.projection(y.transpose(1, 2).reshape(batch, length, width)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder; the default is GPT-2 small with an output layer of its own: 163M parameters. Gives scores."""

    def __init__(self, config: GPTConfig = GPTConfig()):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(GPTBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(place))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---- a recurrent language model


class LSTMLanguageModel(nn.Module):
    """Embedding, two layers of LSTM, linear. Gives scores."""

    def __init__(self, vocabulary=10000, width=256, hidden=512, layers=2, dropout=0.2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.head(self.dropout(states))


# ---- U-Net (Ronneberger et al. 2015) with group normalisation


def double_conv(inputs: int, outputs: int, groups: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(groups, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(groups, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Three resolutions; the upward path is a transposed convolution, then a bilinear enlargement. Returns scores by
    pixel."""

    def __init__(self, in_channels=3, classes=2, width=32, groups=8):
        super().__init__()
        self.down1 = double_conv(in_channels, width, groups)
        self.down2 = double_conv(width, 2 * width, groups)
        self.bottom = double_conv(2 * width, 4 * width, groups)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width, groups)
        self.up1 = nn.Conv2d(2 * width, width, 1)
        self.merge1 = double_conv(2 * width, width, groups)
        self.head = nn.Conv2d(width, classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        first = self.down1(images)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.merge2(torch.cat([x, second], dim=1))
        x = F.interpolate(self.up1(x), scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.merge1(torch.cat([x, first], dim=1)))


# ---- DCGAN (Radford et al. 2015)


class DCGAN(nn.Module):
    """A generator and a discriminator; `size` of the images is a power of two, at least 16."""

    def __init__(self, noise=100, width=64, in_channels=3, size=64):
        super().__init__()
        self.noise = noise
        steps = size.bit_length() - 4  # doublings between 4x4 and size/2
        top = width << steps

        layers = [nn.ConvTranspose2d(noise, top, 4, 1, 0, bias=False), nn.BatchNorm2d(top), nn.ReLU(inplace=True)]
        for index in range(steps):
            inputs = top >> index
            layers += [
                nn.ConvTranspose2d(inputs, inputs // 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(inputs // 2),
                nn.ReLU(inplace=True),
            ]
        self.generator = nn.Sequential(*layers, nn.ConvTranspose2d(width, in_channels, 4, 2, 1, bias=False), nn.Tanh())

        layers = [nn.Conv2d(in_channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        for index in range(steps):
            inputs = width << index
            layers += [
                nn.Conv2d(inputs, inputs * 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(inputs * 2),
                nn.LeakyReLU(0.2),
            ]
        self.discriminator = nn.Sequential(*layers, nn.Conv2d(top, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0))
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, noise: Tensor) -> Tensor:
        return self.generator(noise)


# ---- losses and steps

Batch = tuple[Tensor, ...]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def nll(output: Tensor, target: Tensor) -> Tensor:
    return F.nll_loss(output, target)


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def token_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def one_optimizer(model: nn.Module, make: MakeOptimizer) -> list[torch.optim.Optimizer]:
    return [make(model.parameters())]


def supervised_step(loss: Callable[[Tensor, Tensor], Tensor]):
    def step(model: nn.Module, optimizers: list[torch.optim.Optimizer], batch: Batch) -> list[Tensor]:
        inputs, target = batch
        optimizers[0].zero_grad()
        value = loss(model(inputs), target)
        value.backward()
        optimizers[0].step()
        return [value.detach()]

    return step


def dcgan_optimizers(model: nn.Module, make: MakeOptimizer) -> list[torch.optim.Optimizer]:
    return [make(model.discriminator.parameters()), make(model.generator.parameters())]


def dcgan_step(model: nn.Module, optimizers: list[torch.optim.Optimizer], batch: Batch) -> list[Tensor]:
    """The discriminator learns to distinguish real from generated images, then the generator learns to mislead it."""
    real, noise = batch
    judge, maker = optimizers
    one = torch.ones(len(real), dtype=real.dtype, device=real.device)
    made = model.generator(noise)
    judge.zero_grad()
    loss_real = F.binary_cross_entropy(model.discriminator(real), one)
    loss_made = F.binary_cross_entropy(model.discriminator(made.detach()), 1 - one)
    (loss_real + loss_made).backward()
    judge.step()
    maker.zero_grad()
    loss_maker = F.binary_cross_entropy(model.discriminator(made), one)
    loss_maker.backward()
    maker.step()
    return [(loss_real + loss_made).detach(), loss_maker.detach()]


# ---- batches: made on the CPU, from a generator


def image_batch(shape, classes):
    def make(count: int, generator: torch.Generator) -> Batch:
        images = torch.randn(count, *shape, generator=generator)
        return images, torch.randint(classes, (count,), generator=generator)

    return make


def token_batch(length, vocabulary):
    def make(count: int, generator: torch.Generator) -> Batch:
        tokens = torch.randint(vocabulary, (count, length + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return make


def pixel_batch(shape, classes):
    def make(count: int, generator: torch.Generator) -> Batch:
        images = torch.randn(count, *shape, generator=generator)
        return images, torch.randint(classes, (count, *shape[1:]), generator=generator)

    return make


def dcgan_batch(shape, noise):
    def make(count: int, generator: torch.Generator) -> Batch:
        images = torch.rand(count, *shape, generator=generator) * 2 - 1
        return images, torch.randn(count, noise, 1, 1, generator=generator)

    return make


# ---- the registry


@dataclass(frozen=True)
class Size:
    """A network at one size: how to build it for a dropout probability, and how to make `count` examples."""

    build: Callable[[float], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    count: int


@dataclass(frozen=True)
class Case:
    title: str
    full: Size
    small: Size
    step: Callable[[nn.Module, list[torch.optim.Optimizer], Batch], list[Tensor]]
    optimizers: Callable[[nn.Module, MakeOptimizer], list[torch.optim.Optimizer]] = one_optimizer
    dropout: float = 0.0  # the usual probability
    infer: Callable[[nn.Module, Batch], Tensor] = lambda model, batch: model(batch[0])

    def build(self, small: bool = False, dropout: float | None = None) -> nn.Module:
        """A new network with fresh weights from torch's default generator."""
        return (self.small if small else self.full).build(self.dropout if dropout is None else dropout)

    def batch(self, count: int | None = None, small: bool = False, generator: torch.Generator | None = None) -> Batch:
        """`count` examples (the size's usual number by default) on the CPU."""
        size = self.small if small else self.full
        return size.batch(count or size.count, generator or torch.Generator().manual_seed(0))


def gpt_case() -> Case:
    small = GPTConfig(layers=2, width=32, heads=4, vocabulary=61, context=16)

    def build(config: GPTConfig):
        return lambda p: GPT(GPTConfig(**{**vars(config), "dropout": p}))

    return Case(
        "GPT-2 small",
        full=Size(build(GPTConfig()), token_batch(128, GPTConfig.vocabulary), 1),
        small=Size(build(small), token_batch(12, small.vocabulary), 3),
        step=supervised_step(token_cross_entropy),
        dropout=0.1,
    )


CASES: dict[str, Case] = {
    "cnn": Case(
        "CNN",
        full=Size(lambda p: ConvNet(dropout=p), image_batch((1, 28, 28), 10), 512),
        small=Size(lambda p: ConvNet(1, 16, 10, p, (4, 6, 8)), image_batch((1, 16, 16), 10), 6),
        step=supervised_step(nll),
        dropout=0.3,
    ),
    "mlp": Case(
        "Softshrink MLP",
        full=Size(lambda p: SoftshrinkMLP(), image_batch((784,), 10), 64),
        small=Size(lambda p: SoftshrinkMLP((24, 32, 32, 32, 10)), image_batch((24,), 10), 8),
        step=supervised_step(nll),
    ),
    "resnet50": Case(
        "ResNet-50",
        full=Size(lambda p: ResNet(), image_batch((3, 224, 224), 1000), 2),
        small=Size(lambda p: ResNet((2, 1, 1, 1), 4, 10), image_batch((3, 64, 64), 10), 8),
        step=supervised_step(cross_entropy),
    ),
    "gpt2": gpt_case(),
    "lstm": Case(
        "LSTM language model",
        full=Size(lambda p: LSTMLanguageModel(dropout=p), token_batch(32, 10000), 16),
        small=Size(lambda p: LSTMLanguageModel(47, 12, 16, 2, p), token_batch(7, 47), 4),
        step=supervised_step(token_cross_entropy),
        dropout=0.2,
    ),
    "unet": Case(
        "U-Net",
        full=Size(lambda p: UNet(), pixel_batch((3, 128, 128), 2), 2),
        small=Size(lambda p: UNet(3, 3, 8, 4), pixel_batch((3, 16, 16), 3), 2),
        step=supervised_step(cross_entropy),
    ),
    "dcgan": Case(
        "DCGAN",
        full=Size(lambda p: DCGAN(), dcgan_batch((3, 64, 64), 100), 16),
        small=Size(lambda p: DCGAN(8, 6, 3, 16), dcgan_batch((3, 16, 16), 8), 6),
        step=dcgan_step,
        optimizers=dcgan_optimizers,
        infer=lambda model, batch: model(batch[1]),
    ),
}
