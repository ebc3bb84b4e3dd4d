"""BERT (Devlin et al. 2018) from transformers: guesses letters that are masked in this repository's documentation."""

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from .words import MASK, VOCABULARY, decode, draw_lines

TITLE = "BERT"
STEPS, RATE = 300, 1e-3
MASKED = 0.15


def build(small: bool = False) -> BertForMaskedLM:
    width, layers = (16, 2) if small else (128, 3)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,
    )
    return BertForMaskedLM(config)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    """Letters with some masked, and which are to be guessed (-100 elsewhere)."""
    tokens = draw_lines(generator, 2, 12) if small else draw_lines(generator, 16, 64)
    masked = torch.rand(tokens.shape, generator=generator) < (0.4 if small else MASKED)
    return tokens.masked_fill(masked, MASK), tokens.masked_fill(~masked, -100)


def loss(model: BertForMaskedLM, tokens: Tensor, labels: Tensor) -> Tensor:
    return model(input_ids=tokens, labels=labels).loss


def infer(model: BertForMaskedLM, tokens: Tensor, labels: Tensor) -> Tensor:
    return model(input_ids=tokens).logits


def draw(figure, model: BertForMaskedLM, device) -> str:
    """Lines with their guesses: green where right, red where wrong."""
    tokens, labels = batch(torch.Generator().manual_seed(8))
    guess = model(input_ids=tokens.to(device)).logits[..., :MASK].argmax(-1).cpu()
    masked = labels >= 0
    right = (guess == labels) & masked
    axes = figure.subplots()
    axes.set(xlim=(0, 48), ylim=(12.5, -0.5))
    axes.axis("off")
    for row in range(12):
        for column in range(48):
            letter = decode((guess if masked[row, column] else tokens)[row, column, None])
            color = "#000000" if not masked[row, column] else "#2ca02c" if right[row, column] else "#d62728"
            weight = "bold" if masked[row, column] else "normal"
            axes.text(column, row, letter, family="monospace", fontsize=6, color=color, fontweight=weight)
    share = 100 * right.sum().item() / masked.sum().item()
    return f"{share:.0f} % of the masked letters are guessed (green); red ones are wrong"
