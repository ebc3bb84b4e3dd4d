"""A detector in the style of YOLO (Redmon et al. 2016; blocks as in YOLOv5): shapes in noise, boxed.

A backbone of strided convolutions with split bottlenecks and pooled context, a neck that brings coarse features back
to the finer grid, and a head on two grids. Each cell predicts a score for containing the middle of an object, its
box, and its class. Of overlapping boxes of a class the one with the best score stays: `suppress`, in torch's
operators, which reads no value on the host.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TITLE = "Detector (YOLO)"
STEPS, RATE = 220, 2e-3
CLASSES = ("disc", "square", "triangle")
STRIDES, LARGE = (8, 16), 26.0  # objects of at least LARGE pixels belong to the coarse grid


class Conv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1):
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class SplitBottleneck(nn.Module):
    """Half of the channels go through a residual bottleneck, the others around it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        half = outputs // 2
        self.through, self.around = Conv(inputs, half), Conv(inputs, half)
        self.block = nn.Sequential(Conv(half, half), Conv(half, half, 3))
        self.join = Conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.through(x)
        return self.join(torch.cat((y + self.block(y), self.around(x)), dim=1))


class PooledContext(nn.Module):
    """Windows of 5, 9 and 13 cells, as three successive poolings."""

    def __init__(self, width: int):
        super().__init__()
        self.narrow, self.join = Conv(width, width // 2), Conv(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.narrow(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.join(torch.cat(parts, dim=1))


class Detector(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        w = width
        self.stem = nn.Sequential(Conv(3, w, 3, 2), Conv(w, 2 * w, 3, 2), SplitBottleneck(2 * w, 2 * w))
        self.fine = nn.Sequential(Conv(2 * w, 4 * w, 3, 2), SplitBottleneck(4 * w, 4 * w))
        self.coarse = nn.Sequential(Conv(4 * w, 8 * w, 3, 2), SplitBottleneck(8 * w, 8 * w), PooledContext(8 * w))
        self.up = nn.Sequential(Conv(8 * w, 4 * w), nn.Upsample(scale_factor=2, mode="nearest"))
        self.neck = SplitBottleneck(8 * w, 4 * w)
        self.heads = nn.ModuleList(nn.Conv2d(c, 5 + len(CLASSES), 1) for c in (4 * w, 8 * w))
        for head in self.heads:
            nn.init.constant_(head.bias[:1], -4.0)  # almost all cells are empty

    def forward(self, images: Tensor) -> Tensor:
        """(count, cells, 1 + 4 + classes): sureness and class as logits; left, top, right, bottom in pixels."""
        fine = self.fine(self.stem(images))
        coarse = self.coarse(fine)
        grids = self.neck(torch.cat((self.up(coarse), fine), dim=1)), coarse
        return torch.cat([self.decode(head(x), s) for head, x, s in zip(self.heads, grids, STRIDES)], dim=1)

    def decode(self, x: Tensor, stride: int) -> Tensor:
        height, width = x.shape[2:]
        y = x.permute(0, 2, 3, 1)
        rows = torch.arange(height, device=x.device)[:, None, None]
        columns = torch.arange(width, device=x.device)[None, :, None]
        middle_x = (columns + 2 * y[..., 1:2].sigmoid() - 0.5) * stride
        middle_y = (rows + 2 * y[..., 2:3].sigmoid() - 0.5) * stride
        half = (2 * y[..., 3:5].sigmoid()).square() * stride
        low = torch.cat((middle_x, middle_y), dim=-1) - half
        high = torch.cat((middle_x, middle_y), dim=-1) + half
        return torch.cat((y[..., :1], low, high, y[..., 5:]), dim=-1).flatten(1, 2)


def build(small: bool = False) -> Detector:
    return Detector(4 if small else 16)


# ---- images


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    count, size = (2, 32) if small else (12, 96)
    images, boxes, classes = make_images(generator, count, size, 1 if small else 4)
    return images, *targets(boxes, classes, size)


def make_images(generator: torch.Generator, count: int, size: int, objects: int) -> tuple[Tensor, ...]:
    """Images of `objects` shapes each, later ones in front; their boxes (count, objects, 4) and classes."""

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    images = 0.25 + 0.08 * torch.randn(count, 3, size, size, generator=generator)
    radius = uniform(size / 12, size / 4.5, objects)
    middle = radius[..., None] + (size - 2 * radius[..., None]) * uniform(0, 1, objects, 2)
    classes = torch.randint(len(CLASSES), (count, objects), generator=generator)
    colors = uniform(0.35, 1, objects, 3)
    pixel = torch.arange(size) + 0.5
    for index in range(objects):
        x = (pixel[None, None, :] - middle[:, index, 0, None, None]) / radius[:, index, None, None]
        y = (pixel[None, :, None] - middle[:, index, 1, None, None]) / radius[:, index, None, None]
        disc, square = x * x + y * y <= 1, x.abs().maximum(y.abs()) <= 1
        triangle = square & (x.abs() <= (y + 1) / 2)
        kind = classes[:, index, None, None]
        inside = torch.where(kind == 0, disc, torch.where(kind == 1, square, triangle))
        images = torch.where(inside[:, None], colors[:, index, :, None, None], images)
    boxes = torch.cat((middle - radius[..., None], middle + radius[..., None]), dim=-1)
    return images, boxes, classes


def targets(boxes: Tensor, classes: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each cell of both grids: 1 if it contains an object's middle, that object's box, and its class."""
    count, objects = classes.shape
    width = boxes[..., 2] - boxes[..., 0]
    middle = (boxes[..., :2] + boxes[..., 2:]) / 2
    is_object, box, kind = [], [], []
    for stride, wanted in zip(STRIDES, (width < LARGE, width >= LARGE)):
        side = size // stride
        cell = (middle / stride).long().clamp(max=side - 1)
        cell = torch.where(wanted, cell[..., 1] * side + cell[..., 0], side * side)  # one more, for the others
        full = torch.zeros(count, side * side + 1), torch.zeros(count, side * side + 1, 4)
        classes_of = torch.zeros(count, side * side + 1, dtype=torch.long)
        for index in range(objects):
            place = cell[:, index, None]
            full[0].scatter_(1, place, 1.0)
            full[1].scatter_(1, place[..., None].expand(-1, -1, 4), boxes[:, index, None])
            classes_of.scatter_(1, place, classes[:, index, None])
        is_object.append(full[0][:, :-1])
        box.append(full[1][:, :-1])
        kind.append(classes_of[:, :-1])
    return torch.cat(is_object, 1), torch.cat(box, 1), torch.cat(kind, 1)


# ---- boxes


def area(low: Tensor, high: Tensor) -> Tensor:
    side = (high - low).clamp(min=0)
    return side[..., 0] * side[..., 1]


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes (..., 4) that broadcast."""
    shared = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    return shared / (area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - shared + 1e-6)


def suppress(boxes: Tensor, scores: Tensor, classes: Tensor, limit: float = 0.45) -> Tensor:
    """The mask of the boxes (count, n, 4), best score first, that stay: each that overlaps no better one of its class
    that stays."""
    rivals = overlap(boxes[:, :, None], boxes[:, None]) > limit
    rivals = rivals & (classes[:, :, None] == classes[:, None])
    stays = scores > 0.35
    later = torch.arange(boxes.shape[1], device=boxes.device)
    for index in range(boxes.shape[1] - 1):
        stays = stays & ~(rivals[:, index] & stays[:, index, None] & (later > index))
    return stays


def detect(model: Detector, images: Tensor, most: int = 24) -> tuple[Tensor, ...]:
    """The `most` surest boxes of each image with scores and classes, and which of them stay."""
    x = model(images)
    scores, classes = (x[..., :1].sigmoid() * x[..., 5:].softmax(-1)).max(-1)
    scores, order = scores.topk(most, dim=1)
    boxes = x[..., 1:5].gather(1, order[..., None].expand(-1, -1, 4))
    classes = classes.gather(1, order)
    return boxes, scores, classes, suppress(boxes, scores, classes)


# ---- training


def loss(model: Detector, images: Tensor, is_object: Tensor, boxes: Tensor, classes: Tensor) -> Tensor:
    """The score's loss in all cells; in cells with an object also overlap, distance of the middles, and class."""
    x = model(images)
    found = x[..., 1:5]
    objects = is_object.sum().clamp(min=1)
    sure = F.binary_cross_entropy_with_logits(x[..., 0], is_object, reduction="sum") / objects
    hull = torch.maximum(found[..., 2:], boxes[..., 2:]) - torch.minimum(found[..., :2], boxes[..., :2])
    apart = ((found[..., :2] + found[..., 2:] - boxes[..., :2] - boxes[..., 2:]) / 2).square().sum(-1)
    box = 1 - overlap(found, boxes) + apart / (hull.square().sum(-1) + 1e-6)
    kind = F.cross_entropy(x[..., 5:].flatten(0, 1), classes.flatten(), reduction="none").view_as(is_object)
    return sure + ((2 * box + kind) * is_object).sum() / objects


def infer(model: Detector, images: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
    boxes, scores, classes, stays = detect(model, images, 12)
    return model(images), scores, stays


def draw(figure, model: Detector, device) -> str:
    """Four unseen images with the boxes that stay."""
    from matplotlib.patches import Rectangle

    images, boxes, _ = make_images(torch.Generator().manual_seed(21), 6, 96, 4)
    found = [t.cpu() for t in detect(model, images.to(device))]
    colors, right = ("#ff4136", "#ffdc00", "#2ecc40"), 0
    for index, axes in enumerate(figure.subplots(2, 3).flat):
        axes.imshow(images[index].permute(1, 2, 0).clamp(0, 1))
        axes.axis("off")
        mine = [t[index][found[3][index]] for t in found[:3]]
        right += (overlap(boxes[index][:, None], mine[0][None]) > 0.5).any(1).sum().item()
        for (left, top, end, bottom), score, kind in zip(*(t.tolist() for t in mine)):
            color = colors[kind]
            axes.add_patch(Rectangle((left, top), end - left, bottom - top, fill=False, ec=color, lw=1.3))
            axes.text(left + 1, top - 2, f"{CLASSES[kind]} {score:.2f}", color=color, fontsize=5)
    return f"{right} of {boxes.shape[0] * boxes.shape[1]} shapes (some are partly hidden) are found in unseen images"
