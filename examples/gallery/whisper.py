"""Whisper (Radford et al. 2022) from transformers: hears a melody in noise and writes down its notes.

Sound goes through a short Fourier transform and a mel filter bank, on the device, into the encoder; the decoder writes
a token for each note, with cross-attention to the encoder's output. Greedy generation keeps a cache.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, WhisperConfig, WhisperForConditionalGeneration

TITLE = "Whisper"
STEPS, RATE = 400, 1e-3
RATE_OF_SOUND, HOP, WINDOW, BANDS = 4000, 50, 256, 40
NAMES = ("c", "d", "e", "f", "g", "a", "b", "C")
BEGIN, END, FIRST = 0, 1, 2  # tokens; notes follow


def sizes(small: bool) -> tuple[int, int]:
    """Notes of a melody, samples of a note."""
    return (2, 400) if small else (6, 1000)


def build(small: bool = False) -> WhisperForConditionalGeneration:
    notes, samples = sizes(small)
    width, layers = (16, 1) if small else (96, 2)
    config = WhisperConfig(
        vocab_size=FIRST + len(NAMES),
        num_mel_bins=BANDS,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=notes * samples // HOP // 2,  # the second convolution halves them
        max_target_positions=16,
        init_std=width**-0.5,  # the default is one of wide networks
        decoder_start_token_id=BEGIN,
        bos_token_id=BEGIN,
        eos_token_id=END,
        pad_token_id=END,
        dropout=0.0,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        max_new_tokens=8, decoder_start_token_id=BEGIN, eos_token_id=END, pad_token_id=END
    )
    model.register_buffer("window", torch.hann_window(WINDOW))
    model.register_buffer("bands", mel_bands())
    return model


def mel_bands() -> Tensor:
    """(frequencies, bands): triangles that overlap, of equal width on the mel scale."""

    def mel(hertz):
        return 2595 * math.log10(1 + hertz / 700)

    corners = 700 * (10 ** (torch.linspace(mel(60), mel(RATE_OF_SOUND / 2), BANDS + 2) / 2595) - 1)
    hertz = torch.linspace(0, RATE_OF_SOUND / 2, WINDOW // 2 + 1)[:, None]
    rise = (hertz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    fall = (corners[2:] - hertz) / (corners[2:] - corners[1:-1])
    return rise.minimum(fall).clamp(min=0)


def spectrogram(model, sound: Tensor) -> Tensor:
    """(count, bands, frames): logarithm of the power in each band, clipped eight decades below the loudest."""
    power = torch.stft(sound, WINDOW, HOP, window=model.window, return_complex=True).abs().square()[..., :-1]
    level = (model.bands.t() @ power).clamp(min=1e-8).log10()
    return (level.maximum(level.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    """Melodies as sound, and their notes as tokens that end with END."""
    notes, samples = sizes(small)
    count = 2 if small else 16
    note = torch.randint(len(NAMES), (count, notes), generator=generator)
    step = torch.tensor([0, 2, 4, 5, 7, 9, 11, 12])[note]
    hertz = 262 * 2 ** ((step + 0.3 * torch.randn(step.shape, generator=generator).clamp(-1, 1)) / 12)
    time = torch.arange(samples) / RATE_OF_SOUND
    angle = 2 * math.pi * hertz[..., None] * time
    fade = (-4 * time).exp() * (time * 100).clamp(max=1)
    sound = ((angle.sin() + 0.5 * (2 * angle).sin() + 0.25 * (3 * angle).sin()) * fade).flatten(1)
    sound = sound + 0.05 * torch.randn(sound.shape, generator=generator)
    return sound, F.pad(note + FIRST, (0, 1), value=END)


def loss(model, sound: Tensor, notes: Tensor) -> Tensor:
    return model(input_features=spectrogram(model, sound), labels=notes, use_cache=False).loss


def infer(model, sound: Tensor, notes: Tensor) -> tuple[Tensor, ...]:
    heard = spectrogram(model, sound[:4])
    begin = torch.full((len(heard), 1), BEGIN, device=sound.device)
    return heard, model(input_features=heard, decoder_input_ids=begin).logits, listen(model, sound[:4])


def listen(model, sound: Tensor) -> Tensor:
    """The tokens that the melodies are heard as, each the likeliest after those before it."""
    heard = spectrogram(model, sound)
    begin = torch.full((len(heard), 1), BEGIN, device=sound.device)
    mask = torch.ones(heard.shape[0], heard.shape[2], dtype=torch.long, device=sound.device)
    # Whisper's own generate() divides long sounds into pieces; the usual one, below it, writes tokens.
    return GenerationMixin.generate(model, heard, decoder_input_ids=begin, attention_mask=mask)


def spell(tokens: Tensor) -> str:
    return " ".join(NAMES[token - FIRST] for token in tokens.tolist() if token >= FIRST)


def draw(figure, model, device) -> str:
    """The spectrogram of an unseen melody, its notes, and the recognised ones."""
    sound, notes = (t.to(device) for t in batch(torch.Generator().manual_seed(9)))
    heard = listen(model, sound)[:, 1:].cpu()
    notes = notes.cpu()
    width = min(heard.shape[1], notes.shape[1])
    right = (heard[:, :width] == notes[:, :width]).all(1).sum().item()
    axes = figure.subplots()
    axes.imshow(spectrogram(model, sound[:1])[0].cpu(), origin="lower", aspect="auto", cmap="magma")
    axes.set(xticks=[], yticks=[], ylabel="mel bands")
    axes.set_title(f"played: {spell(notes[0])}     heard: {spell(heard[0])}", fontsize=7)
    return f"{right} of {len(notes)} unseen melodies of {notes.shape[1] - 1} notes are transcribed without a mistake"
