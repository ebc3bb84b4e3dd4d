"""A Llama (Touvron et al. 2023) from transformers: rotary embedding, grouped queries, a cache of keys and values.

It reads this repository's documentation, letter by letter, and then writes on with the cache.
"""

import textwrap

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from .words import VOCABULARY, decode, draw_lines, encode

TITLE = "Llama"
STEPS, RATE = 300, 2e-3
BEGINNING = "a buffer is "


def build(small: bool = False) -> LlamaForCausalLM:
    width, layers = (16, 2) if small else (128, 4)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8 if not small else 4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=width**-0.5,  # the default is one of wide networks
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    return (draw_lines(generator, 2, 12) if small else draw_lines(generator, 16, 96),)


def loss(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def infer(model: LlamaForCausalLM, tokens: Tensor) -> tuple[Tensor, ...]:
    return model(input_ids=tokens[:2]).logits, write(model, tokens[:2, :8], 8)


def write(model: LlamaForCausalLM, tokens: Tensor, count: int) -> Tensor:
    """`tokens` and the `count` likeliest that follow, one by one, with the cache."""
    mask = torch.ones_like(tokens)
    return model.generate(tokens, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)


def draw(figure, model: LlamaForCausalLM, device) -> str:
    written = decode(write(model, encode(BEGINNING)[None].to(device), 200)[0].cpu())
    axes = figure.subplots()
    axes.axis("off")
    axes.text(0, 0.95, "\n".join(textwrap.wrap(written, 34)), family="monospace", fontsize=8, va="top")
    return f"greedy decoding after \"{BEGINNING.strip()}\", letter by letter, with its key-value cache"
