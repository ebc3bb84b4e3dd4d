"""A vision transformer (Dosovitskiy et al. 2020): patches of handwritten digits as a sequence, with a class token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .digits import draw_batch, test_images

TITLE = "Vision transformer"
STEPS, RATE = 350, 7e-4


class ViT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, patch: int = 2, size: int = 8, classes: int = 10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.place = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1) + self.place
        return self.head(self.encoder(x)[:, 0])


def build(small: bool = False) -> ViT:
    return ViT(16, 2, 2) if small else ViT(96, 6, 4)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    return draw_batch(generator, 6 if small else 128)


def loss(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(model(images), classes, label_smoothing=0.1)


def infer(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    return model(images)


def draw(figure, model: ViT, device) -> str:
    """The confusion matrix: rows are digits, columns the network's answers."""
    images, classes = (t.to(device) for t in test_images())
    said = model(images).argmax(1)
    counts = torch.zeros(100, dtype=torch.long, device=device)
    counts = counts.scatter_add(0, classes * 10 + said, torch.ones_like(classes)).view(10, 10).cpu()
    axes = figure.subplots()
    axes.imshow(counts.float().pow(0.4), cmap="Blues")
    for row in range(10):
        for column in range(10):
            if counts[row, column]:
                color = "white" if row == column else "#d62728"
                axes.text(column, row, int(counts[row, column]), ha="center", va="center", color=color, fontsize=7)
    axes.set(xticks=range(10), yticks=range(10), xlabel="what the network says", ylabel="digit")
    axes.tick_params(labelsize=7)
    return f"{100 * (said == classes).double().mean().item():.1f} % of {len(classes)} unseen digits are right"
