"""BERT (Devlin et al. 2018) from transformers: guesses masked words of sentences such as "two old dogs bark at one
cat that meows".

A sentence is made of parts that agree: animals have their sounds, and one dog barks where two dogs bark. All masked
words except adjectives can be inferred from the words around them.
"""

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

TITLE = "BERT"
STEPS, RATE = 300, 1e-3
MASKED = 0.2
ANIMALS = ("dog", "cat", "cow", "duck", "horse", "frog", "lion", "owl")
SOUNDS = ("bark", "meow", "moo", "quack", "neigh", "croak", "roar", "hoot")
NUMBERS = ("one", "two", "three", "four")
KINDS = ("old", "small", "quiet", "brown", "happy", "wild")
WORDS = (
    *NUMBERS,
    *KINDS,
    *(animal + ending for animal in ANIMALS for ending in ("", "s")),
    *(sound + ending for sound in SOUNDS for ending in ("s", "")),
    *("at", "that", "and"),
)
MASK = len(WORDS)


def build(small: bool = False) -> BertForMaskedLM:
    width, layers = (16, 2) if small else (128, 3)
    config = BertConfig(
        vocab_size=len(WORDS) + 1,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,
    )
    return BertForMaskedLM(config)


def phrases(generator: torch.Generator, count: int, between: list[str]) -> Tensor:
    """(count, 4 + len(between)): a number, a kind, an animal, the words `between`, and its sound, as tokens."""

    def choose(words):
        return torch.randint(len(words), (count, 1), generator=generator)

    number, kind, animal = choose(NUMBERS), choose(KINDS), choose(ANIMALS)
    several = (number > 0).long()
    animals = len(NUMBERS) + len(KINDS)
    sounds = animals + 2 * len(ANIMALS)
    fixed = torch.tensor([[WORDS.index(word) for word in between]], dtype=torch.long).expand(count, -1)
    parts = (number, len(NUMBERS) + kind, animals + 2 * animal + several, fixed, sounds + 2 * animal + several)
    return torch.cat(parts, dim=1)


def batch(generator: torch.Generator, small: bool = False) -> tuple[Tensor, ...]:
    """Sentences with some words masked, and which are to be guessed (-100 elsewhere)."""
    count = 3 if small else 48
    at, joined = (torch.full((count, 1), WORDS.index(word)) for word in ("at", "and"))
    halves = []
    for _ in range(1 if small else 2):
        halves += [phrases(generator, count, []), at, phrases(generator, count, ["that"]), joined]
    tokens = torch.cat(halves[:-1], dim=1)
    masked = torch.rand(tokens.shape, generator=generator) < MASKED
    masked[:, 0] |= ~masked.any(1)
    return tokens.masked_fill(masked, MASK), tokens.masked_fill(~masked, -100)


def loss(model: BertForMaskedLM, tokens: Tensor, labels: Tensor) -> Tensor:
    return model(input_ids=tokens, labels=labels).loss


def infer(model: BertForMaskedLM, tokens: Tensor, labels: Tensor) -> Tensor:
    return model(input_ids=tokens).logits


def draw(figure, model: BertForMaskedLM, device) -> str:
    """Sentences with its guesses of the masked words: green if right, red if wrong."""
    tokens, labels = batch(torch.Generator().manual_seed(8))
    guess = model(input_ids=tokens.to(device)).logits[..., :MASK].argmax(-1).cpu()
    masked = labels >= 0
    right = (guess == labels) & masked
    axes = figure.subplots()
    axes.set(xlim=(0, 58), ylim=(13.5, -0.5))
    axes.axis("off")
    for line in range(14):
        row, part = line // 2, slice(0, 10) if line % 2 == 0 else slice(10, 19)
        column = 0.0 if line % 2 == 0 else 3.0
        words = (t[row, part].tolist() for t in (tokens, guess, masked, right))
        for token, said, is_masked, is_right in zip(*words):
            word = WORDS[said if is_masked else token]
            color = "#000000" if not is_masked else "#2ca02c" if is_right else "#d62728"
            weight = "bold" if is_masked else "normal"
            axes.text(column, line, word, family="monospace", fontsize=5.5, color=color, fontweight=weight)
            column += len(word) + 1
    share = 100 * right.sum().item() / masked.sum().item()
    return f"{share:.0f} % of the masked words are guessed (green); adjectives are not predictable"
