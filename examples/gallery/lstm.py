"""Two layers of LSTM (Hochreiter & Schmidhuber 1997) that hear a tone and hum on: from each frame of samples the
next.

The tones are three harmonics that beat slowly. The trained network hears a third of a second, then its own output is
its input; `lstm.wav` is the result.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TITLE = "LSTM"
STEPS, RATE = 250, 3e-3
SAMPLES_A_SECOND, FRAME = 4000, 20
HEARD, HUMMED = 64, 336  # frames


class Hummer(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.lstm = nn.LSTM(FRAME, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, FRAME)

    def forward(self, frames: Tensor, state=None):
        x, state = self.lstm(frames, state)
        return self.head(x), state


def build(small: bool = False) -> Hummer:
    return Hummer(12 if small else 128)


def tones(generator: torch.Generator, count: int, frames: int) -> Tensor:
    """(count, frames, FRAME): notes of a scale with three harmonics and a slow beat."""
    time = torch.arange(frames * FRAME) / SAMPLES_A_SECOND
    note = torch.randint(8, (count, 1), generator=generator)
    phase = torch.rand(count, 3, generator=generator) * 2 * math.pi
    base = 2 * math.pi * 110 * 2 ** (note * 2 / 12)
    wave = (base * time + phase[:, :1]).sin() + 0.4 * (2 * base * time + phase[:, 1:2]).sin()
    beat = 0.7 + 0.3 * (2 * math.pi * 4 * time + phase[:, 2:]).cos()
    return (0.5 * wave * beat).view(count, frames, FRAME)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    count, frames = (3, 9) if small else (32, 65)
    clean = tones(generator, count, frames)
    noise = torch.randn(clean.shape, generator=generator) * 0.03
    return (clean + noise)[:, :-1].contiguous(), clean[:, 1:].contiguous()


def loss(model: Hummer, frames: Tensor, following: Tensor) -> Tensor:
    return F.mse_loss(model(frames)[0], following)


def infer(model: Hummer, frames: Tensor, following: Tensor) -> Tensor:
    return hum(model, frames, 4)


def hum(model: Hummer, frames: Tensor, count: int) -> Tensor:
    """`count` frames that follow those given, each made from the one before it."""
    made, state = model(frames)
    made = [made[:, -1:]]
    while len(made) < count:
        frame, state = model(made[-1], state)
        made.append(frame)
    return torch.cat(made, dim=1)


def heard_and_hummed(model: Hummer, device, tone: Tensor) -> Tensor:
    return torch.cat((tone[:, :HEARD], hum(model, tone[:, :HEARD].to(device), HUMMED).cpu()), dim=1)


def sound(model: Hummer, device) -> tuple[Tensor, int]:
    """Four tones, each heard and hummed on."""
    tone = tones(torch.Generator().manual_seed(5), 4, HEARD + HUMMED)
    return heard_and_hummed(model, device, tone).flatten(), SAMPLES_A_SECOND


def draw(figure, model: Hummer, device) -> str:
    """Around the moment from which its input is its own output."""
    tone = tones(torch.Generator().manual_seed(5), 1, HEARD + HUMMED)
    whole = heard_and_hummed(model, device, tone)
    error = (whole - tone)[:, HEARD : HEARD + 50].abs().mean().item()
    shown = slice((HEARD - 4) * FRAME, (HEARD + 16) * FRAME)
    tone, whole = tone.flatten()[shown], whole.flatten()[shown]
    time = torch.arange(len(tone)) / SAMPLES_A_SECOND * 1000
    axes = figure.subplots()
    axes.plot(time, tone, color="#8a8f98", lw=1, label="the tone")
    axes.plot(time[4 * FRAME :], whole[4 * FRAME :], color="#d62728", lw=1, label="hummed")
    axes.axvline(time[4 * FRAME], color="black", lw=0.7, ls=":")
    axes.legend(fontsize=7, frameon=False, loc="upper left")
    axes.set_xlabel("milliseconds", fontsize=7)
    axes.tick_params(labelsize=7)
    return f"from the dotted line on its input is its own output; mean error of a quarter second {error:.3f}"
