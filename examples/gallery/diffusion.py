"""Diffusion (Ho et al. 2020) by a U-Net with attention, as in Stable Diffusion: it learns to take noise off digits.

Residual blocks with the time as an input, self-attention in the middle and in the coarser level, and cross-attention
to the requested digit's embedding. From pure noise, thirty steps of DDIM (Song et al. 2020) make a picture. Noise and
times are part of the batch, so that both devices get the same.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .digits import draw_batch, sheet, test_images

TITLE = "Diffusion U-Net"
STEPS, RATE = 350, 2e-3
TIMES = 200
SIZE = 16  # pixels: the digits, enlarged


def kept(time: Tensor) -> Tensor:
    """The share of the picture's variance that is left at a time from 0 to TIMES: a cosine."""
    return (((time / TIMES) * 0.98 + 0.01) * math.pi / 2).cos().square().view(-1, 1, 1, 1)


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[..., None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.around(x)


class Attention(nn.Module):
    """From each place of the picture to all places, or to the condition."""

    def __init__(self, width: int, context: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        query, key, value = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.query(x), self.key(context), self.value(context))
        )
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Self-attention, cross-attention and a gated layer on the places of a picture."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.itself, self.across = Attention(width, width), Attention(width, context)
        self.gate, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)
        z = self.norms[0](y)
        y = y + self.itself(z, z)
        y = y + self.across(self.norms[1](y), context)
        value, gate = self.gate(self.norms[2](y)).chunk(2, dim=-1)
        y = y + self.out(value * F.gelu(gate))
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


class DiffusionUNet(nn.Module):
    def __init__(self, width: int, context: int = 32):
        super().__init__()
        w, time = width, 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(w, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.asked = nn.Embedding(10, 2 * context)  # two tokens for each digit
        self.first = nn.Conv2d(1, w, 3, padding=1)
        self.down1, self.shrink1 = ResidualBlock(w, w, time), nn.Conv2d(w, w, 3, 2, 1)
        self.down2, self.look2 = ResidualBlock(w, 2 * w, time), Transformer(2 * w, context)
        self.shrink2 = nn.Conv2d(2 * w, 2 * w, 3, 2, 1)
        self.middle1, self.look = ResidualBlock(2 * w, 2 * w, time), Transformer(2 * w, context)
        self.middle2 = ResidualBlock(2 * w, 2 * w, time)
        self.up2, self.look_up2 = ResidualBlock(4 * w, 2 * w, time), Transformer(2 * w, context)
        self.up1 = ResidualBlock(3 * w, w, time)
        self.last = nn.Sequential(nn.GroupNorm(4, w), nn.SiLU(), nn.Conv2d(w, 1, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor, asked: Tensor) -> Tensor:
        """The noise that was added to get `x` at `time`."""
        pace = torch.exp(torch.arange(self.width // 2, device=x.device) * (-math.log(1e4) / (self.width // 2)))
        angle = time[:, None] * pace
        time = self.time(torch.cat((angle.sin(), angle.cos()), dim=1))
        context = self.asked(asked).unflatten(1, (2, -1))
        fine = self.down1(self.first(x), time)
        coarse = self.look2(self.down2(self.shrink1(fine), time), context)
        y = self.middle1(self.shrink2(coarse), time)
        y = self.middle2(self.look(y, context), time)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.look_up2(self.up2(torch.cat((y, coarse), dim=1), time), context)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return self.last(self.up1(torch.cat((y, fine), dim=1), time))


def build(small: bool = False) -> DiffusionUNet:
    return DiffusionUNet(8, 8) if small else DiffusionUNet(32)


def enlarge(images: Tensor, size: int = SIZE) -> Tensor:
    """From 0 to 1 at 8 x 8, to -1 to 1 at 16 x 16."""
    return F.interpolate(images, (size, size), mode="bicubic", align_corners=False).clamp(0, 1) * 2 - 1


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    images, classes = draw_batch(generator, 2 if small else 32)
    images = enlarge(images, 8 if small else SIZE)
    time = torch.randint(1, TIMES + 1, (len(images),), generator=generator).float()
    return images, classes, time, torch.randn(images.shape, generator=generator)


def loss(model: DiffusionUNet, images: Tensor, classes: Tensor, time: Tensor, noise: Tensor) -> Tensor:
    noisy = kept(time).sqrt() * images + (1 - kept(time)).sqrt() * noise
    return F.mse_loss(model(noisy, time, classes), noise)


def infer(model: DiffusionUNet, images: Tensor, classes: Tensor, time: Tensor, noise: Tensor) -> Tensor:
    return make(model, noise[:4], classes[:4], steps=3)


def make(model: DiffusionUNet, x: Tensor, asked: Tensor, begin: int = TIMES, steps: int = 30) -> Tensor:
    """Takes the noise off `x`, which is as noisy as pictures are at time `begin`."""
    times = torch.linspace(begin, 0, steps + 1, device=x.device)
    for now, then in zip(times[:-1], times[1:]):
        noise = model(x, now.expand(len(x)), asked)
        picture = ((x - (1 - kept(now)).sqrt() * noise) / kept(now).sqrt()).clamp(-1, 1)
        x = kept(then).sqrt() * picture + (1 - kept(then)).sqrt() * noise
    return picture


def draw(figure, model: DiffusionUNet, device) -> str:
    """Three rows: test pictures, the same in noise, the noise taken off; below, pictures made of noise alone."""
    generator = torch.Generator().manual_seed(4)
    images, classes = (t[:10] for t in test_images())
    images = enlarge(images)
    begin = TIMES // 2
    level = kept(torch.tensor([float(begin)]))
    noisy = level.sqrt() * images + (1 - level).sqrt() * torch.randn(images.shape, generator=generator)
    cleaned = make(model, noisy.to(device), classes.to(device), begin, 12).cpu()
    asked = torch.arange(10).repeat(3)
    made = make(model, torch.randn(30, 1, SIZE, SIZE, generator=generator).to(device), asked.to(device)).cpu()
    axes = figure.subplots()
    axes.imshow(sheet(torch.cat((images, noisy, cleaned, made)), 10), cmap="gray_r", vmin=-1, vmax=1)
    axes.axhline(3 * SIZE - 0.5, color="#1f77b4", lw=1)
    axes.axis("off")
    before, after = ((t - images).square().mean().item() for t in (noisy, cleaned))
    return f"denoised images (squared error {before:.2f} to {after:.2f}); below, 0 to 9 generated from noise"
