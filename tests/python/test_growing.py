"""Caches that grow by `cat`: the results of torch's CPU, to the bit, whatever a program does with them."""

import copy
import pickle
import random

import pytest
import torch
from support import DEVICE, DRIVER
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="about this device")
IS_HOST = DRIVER == "cpu"
COUNTERS = ("caches_extended", "caches_grown", "layouts_undone")

# dims of a cache of one row, and the dim along which it grows
HEADS_FIRST = ((1, 3, 1, 8), 2)
ROWS_FIRST = ((1, 1, 3, 8), 1)
GROWING = [HEADS_FIRST, ROWS_FIRST, ((1, 8), 0), ((1,), 0), ((3, 1), 1), ((2, 1, 1, 4), 2)]
COPIED = [((2, 3, 1, 4), 2), ((2, 1, 2, 4), 1)]  # several batch dims: products over a pitch would run otherwise
FORMS = GROWING + COPIED
DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.uint8, torch.complex64, torch.float64]


def counted(run) -> dict:
    before = torch.headrace.stats()
    run()
    after = torch.headrace.stats()
    return {name: after[name] - before[name] for name in COUNTERS}


def rows_of(form, count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    dims, dim = form
    dims = (*dims[:dim], count, *dims[dim + 1 :])
    return torch.randint(0, 7, dims, generator=generator).to(dtype)


def grow(form, lengths, dtype=torch.float32, look=lambda there: there[..., -1:].sum().item()) -> None:
    """Each length is that of the piece at the end; after each, the device looks at the cache."""
    generator = torch.Generator().manual_seed(len(lengths))
    here = rows_of(form, lengths[0], dtype, generator)
    there = here.to(DEVICE)
    for length in lengths[1:]:
        row = rows_of(form, length, dtype, generator)
        here = torch.cat((here, row), form[1])
        there = torch.cat((there, row.to(DEVICE)), form[1])
        look(there)
    assert there.shape == here.shape and there.stride() == here.stride() and there.is_contiguous()
    assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_cache_extends_in_place(form, dtype):
    found = counted(lambda: grow(form, [1] * 120, dtype))
    if IS_HOST and form in GROWING:
        assert found["caches_extended"] > 110
        assert found["caches_grown"] < 5
        assert found["layouts_undone"] <= 1  # by the last look
    if form in COPIED:
        assert found == dict.fromkeys(COUNTERS, 0)


def test_a_training_step_gets_no_room():
    def steps():
        for _ in range(8):
            x = torch.ones(2, 3, 4, device=DEVICE)
            x.sum().item()
            x = torch.cat((x, torch.zeros(2, 1, 4, device=DEVICE)), 1)
            x.sum().item()

    assert counted(steps) == dict.fromkeys(COUNTERS, 0)


@pytest.mark.parametrize("form", [HEADS_FIRST, ROWS_FIRST])
def test_pieces_of_any_length(form):
    generator = random.Random(1)
    lengths = [3, 1, 1] + [generator.choice([1, 1, 1, 2, 5, 40]) for _ in range(80)]
    found = counted(lambda: grow(form, lengths))
    assert not IS_HOST or found["caches_extended"] > (60 if form == ROWS_FIRST else 5)


@pytest.mark.parametrize("form", [HEADS_FIRST, ROWS_FIRST])
def test_a_cache_that_the_host_reads_each_time_is_settled(form):
    found = counted(lambda: grow(form, [1] * 40, look=lambda there: there.cpu()))
    assert found["layouts_undone"] <= 1


def advance(chain: list, form, dtype, generator, count: int = 1) -> None:
    row = rows_of(form, count, dtype, generator)
    chain[0] = torch.cat((chain[0], row), form[1])
    chain[1] = torch.cat((chain[1], row.to(DEVICE)), form[1])


def started(form=HEADS_FIRST, dtype=torch.float32, rows: int = 6) -> tuple[list, torch.Generator]:
    """A cache that extends in place: here and there."""
    generator = torch.Generator().manual_seed(rows)
    here = rows_of(form, 1, dtype, generator)
    chain = [here, here.to(DEVICE)]
    for _ in range(rows - 1):
        advance(chain, form, dtype, generator)
        chain[1].sum().item()
    return chain, generator


@pytest.mark.parametrize("form", [HEADS_FIRST, ROWS_FIRST])
def test_an_old_cache_that_is_held_stays(form):
    chain, generator = started(form)
    olds = []
    for _ in range(5):
        olds.append(list(chain))
        advance(chain, form, torch.float32, generator)
        chain[1].sum().item()
    for here, there in [*olds, chain]:
        assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("form", [HEADS_FIRST, ROWS_FIRST])
def test_two_cats_of_one_old_cache(form):
    chain, generator = started(form)
    for _ in range(3):
        rows = [rows_of(form, 1, torch.float32, generator) for _ in range(2)]
        here, there = chain
        chain = None
        heres = [torch.cat((here, row), form[1]) for row in rows]
        theres = [torch.cat((there, row.to(DEVICE)), form[1]) for row in rows]
        del there
        theres[0].sum().item()
        for a, b in zip(heres, theres):
            assert torch.equal(b.cpu(), a)
        chain = [heres[1], theres[1]]
        del theres
        advance(chain, form, torch.float32, generator)
        chain[1].sum().item()


def test_a_piece_may_be_part_of_the_cache():
    chain, _ = started()
    for step in range(6):
        here, there = chain
        chain = [torch.cat((here, here[:, :, step : step + 2] + step), 2)]
        chain.append(torch.cat((there, there[:, :, step : step + 2] + step), 2))
        del there
        chain[1].sum().item()
    assert torch.equal(chain[1].cpu(), chain[0])


def test_writes_before_and_after_the_cat():
    chain, generator = started()
    for step in range(6):
        for cache in chain:
            cache[:, step % 3, 1:3] += 1
        advance(chain, HEADS_FIRST, torch.float32, generator)
        for cache in chain:
            cache[:, :, step].mul_(2)
            cache[..., -1, 0] = step
        chain[1].sum().item()
    assert torch.equal(chain[1].cpu(), chain[0])


def test_everything_that_sees_memory_sees_the_default_layout():
    chain, generator = started()
    here, there = chain
    addresses = {there.data_ptr()}
    for see in (
        lambda t: t.cpu(),
        lambda t: torch.from_numpy(t.cpu().numpy()),
        lambda t: pickle.loads(pickle.dumps(t)).cpu(),
        lambda t: copy.deepcopy(t).cpu(),
        lambda t: t.clone().cpu(),
        lambda t: t.view(-1).cpu().view(t.shape),
        lambda t: t.view(torch.int32).cpu().view(torch.float32),
        lambda t: torch.tensor(t.tolist()),
        lambda t: t.as_strided(t.shape, t.stride()).cpu(),
    ):
        chain, generator = started()
        assert torch.equal(see(chain[1]).cpu(), chain[0])
        advance(chain, HEADS_FIRST, torch.float32, generator)
        assert torch.equal(see(chain[1]).cpu(), chain[0])
    assert addresses == {there.data_ptr()} and torch.equal(there.cpu(), here)


def test_a_failing_program_leaves_the_others_as_they_were():
    chain, generator = started()
    kept = chain[1][:, :, :3].clone()
    table = torch.ones(3, device=DEVICE)
    broken = torch.cat((chain[1], torch.ones(1, 3, 1, 8, device=DEVICE)), 2)
    with pytest.raises(IndexError):
        bad = table[torch.tensor([5], device=DEVICE)]
        (broken.sum() + bad.sum()).item()
    assert torch.equal(chain[1].cpu(), chain[0])
    assert torch.equal(kept.cpu(), chain[0][:, :, :3])


# ---- random programs


def read(cache: torch.Tensor, dim: int, step: int, kind: int) -> torch.Tensor:
    """Values that are exact in any order."""
    rows = cache.shape[dim]
    x = cache.narrow(dim, step % rows, 1 + (rows - step % rows - 1) // 2)
    if kind == 0:
        x = cache
    elif kind == 1:
        x = x.transpose(0, -1)
    elif kind == 2:
        x = cache.flip(dim)
    elif kind == 3:
        x = cache.reshape(-1)[step % 3 :: 2]
    elif kind == 4:
        x = cache.index_select(dim, torch.tensor([0, rows - 1, step % rows]).to(cache.device))
    elif kind == 5:
        x = torch.cat((x, cache.narrow(dim, 0, 1)), dim)
    x = x.to(torch.int64) if not x.is_complex() else torch.view_as_real(x.contiguous()).to(torch.int64)
    return (x * torch.arange(x.numel(), device=x.device).view(x.shape)).sum()


def random_program(seed: int) -> None:
    """Two caches here and there, and a list of things that happen to them."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    form, dtype = draw.choice(FORMS), draw.choice(DTYPES)
    caches = [list(started(form, dtype, draw.randint(1, 5))[0]) for _ in range(2)]
    held = []
    for step in range(draw.randint(4, 14)):
        cache = draw.choice(caches)
        action = draw.randrange(12)
        if action < 6:
            advance(cache, form, dtype, generator, draw.choice([1, 1, 1, 2, 9]))
        elif action == 6:
            held.append([t.narrow(form[1], 0, 1) for t in cache])
        elif action == 7:
            held.append(list(cache))
        elif action == 8:
            held.clear()
        elif action == 9 and dtype != torch.bool:
            for t in cache:
                t.narrow(form[1], step % t.shape[form[1]], 1).add_(1)
        elif action == 10:
            cache[:] = [t.clone() for t in cache]
        else:
            order = torch.arange(cache[0].shape[0] - 1, -1, -1)
            cache[:] = [t.index_select(0, order.to(t.device)) for t in cache]
        kind = draw.randrange(9)
        results = [[read(t, form[1], step, kind) for t in side] for side in zip(*caches)] if kind < 7 else None
        if results is not None:
            assert [r.item() for r in results[0]] == [r.item() for r in results[1]], (seed, step)
        elif kind == 7:
            torch.accelerator.synchronize()
    for here, there in [*caches, *held]:
        assert there.stride() == here.stride()
        assert torch.equal(there.cpu(), here), seed


@pytest.mark.parametrize("block", range(8))
def test_random_programs(block):
    for seed in range(60):
        random_program(60 * block + seed)


# ---- attention


def attend(form, dtype, masked: bool, lengths, device) -> list[torch.Tensor]:
    """Results of attention over a cache that grows; `device` None: over a copy of the same, which has no room."""
    dims, dim = form
    generator = torch.Generator().manual_seed(3)
    heads, width = dims[3 - dim], dims[3]
    found, keys, values = [], None, None
    for length in lengths:
        query, key, value = torch.randn(3, 1, heads, length, width, generator=generator).to(dtype).to(DEVICE)
        if dim == 1:
            key, value = key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()
        keys = key if keys is None else torch.cat((keys, key), dim)
        values = value if values is None else torch.cat((values, value), dim)
        if device is None:
            keys, values = keys.clone(), values.clone()
            (keys[..., 0].sum() + values[..., 0].sum()).item()
        rows = keys.shape[dim]
        mask = torch.rand(length, rows, generator=generator).gt(0.3).to(DEVICE) if masked else None
        k, v = (keys, values) if dim == 2 else (keys.transpose(1, 2), values.transpose(1, 2))
        y = F.scaled_dot_product_attention(query, k, v, attn_mask=mask)
        found.append(y.cpu())
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", [((1, 4, 1, 32), 2), ((1, 1, 4, 32), 1)])
def test_attention_has_the_bits_of_a_cache_without_room(form, dtype, masked):
    for lengths in ([1] * 300, [7, *[1] * 60, 5, 1, 1, 3, 1]):
        results = []
        found = counted(lambda: results.append(attend(form, dtype, masked, lengths, DEVICE)))
        results.append(attend(form, dtype, masked, lengths, None))
        for step, (grown, plain) in enumerate(zip(*results)):
            assert torch.equal(grown.nan_to_num(7), plain.nan_to_num(7)), step
        assert not IS_HOST or found["caches_extended"] > len(lengths)


# ---- transformers


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": False, "penalty_alpha": None}])
def test_transformers_generate(name, options):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    common = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=128, **common)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            **common,
        )
        model = transformers.LlamaForCausalLM(config)
    model = model.eval()
    prompt = torch.tensor([[3, 9, 27, 17]])
    options = {"do_sample": False, "max_new_tokens": 40, **options}
    expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    model = model.to(DEVICE)
    there = prompt.to(DEVICE)
    found = counted(
        lambda: torch.testing.assert_close(
            model.generate(there, attention_mask=torch.ones_like(there), **options).cpu(), expected
        )
    )
    assert not IS_HOST or "num_beams" in options or found["caches_extended"] > 100


def test_lengths_that_come_again_are_seldom_refused():
    """From some length on a library runs other kernels: a second general plan, whose range overlaps the first's."""
    generator = torch.Generator().manual_seed(11)

    def generate() -> int:
        before = torch.headrace.stats()["guard_failures"]
        keys = values = None
        for _ in range(60):
            query, key, value = torch.randn(3, 1, 2, 1, 32, generator=generator).to(DEVICE)
            keys = key if keys is None else torch.cat((keys, key), 2)
            values = value if values is None else torch.cat((values, value), 2)
            F.scaled_dot_product_attention(query, keys, values).sum().item()
        return torch.headrace.stats()["guard_failures"] - before

    generate()
    assert generate() <= 5
