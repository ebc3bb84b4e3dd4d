"""A variational autoencoder (Kingma & Welling 2013) with convolutions, on handwritten digits.

The encoder gives mean and log variance of a code, the decoder makes an image of a sample. The noise of that sample is a
part of the batch, so that both devices see the same.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .digits import draw_batch, sheet, test_images

TITLE = "Variational autoencoder"
STEPS, RATE = 500, 2e-3


class VAE(nn.Module):
    def __init__(self, width: int, code: int):
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(8 * width, 2 * code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 8 * width),
            nn.GELU(),
            nn.Unflatten(1, (2 * width, 2, 2)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.GELU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )

    def forward(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance


def build(small: bool = False) -> VAE:
    return VAE(4, 3) if small else VAE(64, 10)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    images, _ = draw_batch(generator, 8 if small else 128)
    return images, torch.randn(len(images), 3 if small else 10, generator=generator)


def loss(model: VAE, images: Tensor, noise: Tensor) -> Tensor:
    """The negative evidence lower bound of an image, in nats."""
    logits, mean, log_variance = model(images, noise)
    reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (reconstruction + divergence) / len(images)


def infer(model: VAE, images: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
    logits, mean, log_variance = model(images, noise)
    return logits.sigmoid(), mean, log_variance


def draw(figure, model: VAE, device) -> str:
    """Above: test images and their reconstructions; below: images of random codes."""
    images = test_images()[0][:12].to(device)
    again = model(images, torch.zeros(12, model.code, device=device))[0].sigmoid()
    codes = torch.randn(48, model.code, generator=torch.Generator().manual_seed(3)).to(device)
    made = model.decoder(codes).sigmoid()
    axes = figure.subplots()
    axes.imshow(sheet(torch.cat((images, again, made)), 12), cmap="gray_r", vmin=0, vmax=1)
    axes.axhline(15.5, color="#1f77b4", lw=1)
    axes.axis("off")
    error = (again - images).abs().mean().item()
    return f"digits and their reconstructions (mean error {error:.3f}); below, generated digits"
