"""The stream under a training loop: cached programs are reused, memory stays bounded, modes agree."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from networks import CASES
from support import DEVICE, synchronize
from torch import nn

pytestmark = pytest.mark.device_only


@pytest.fixture
def fuse():
    """Restores the usual mode afterwards."""
    yield
    torch.headrace.set_mode("fuse")


def trainer(sizes=(16, 32, 4)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2])).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(8, sizes[0]).to(DEVICE), torch.randint(0, sizes[2], (8,)).to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def is_host():
    return torch.headrace.get_device_properties().is_host


def test_a_loop_that_reads_each_loss_compiles_two_programs():
    step = trainer()
    for _ in range(3):  # the first step also makes the optimizer's state
        step().item()
    torch.headrace.reset_stats()
    for _ in range(10):
        step().item()
    stats = torch.headrace.stats()
    assert stats["compiles"] == 0 and stats["cache_hits"] == stats["commits"]
    # A device beside the host gets each pass separately, and the records so far whenever it would become idle.
    assert stats["commits"] == 10 if is_host() else stats["commits"] >= 30


def test_the_counters_of_a_small_program_add_up():
    x, y = torch.ones(1000, device=DEVICE), torch.ones(1000, device=DEVICE)
    torch.headrace.synchronize()
    torch.headrace.reset_stats()
    z = (x + y).relu()
    torch.headrace.synchronize()
    stats = torch.headrace.stats()
    assert (z == 2).all()
    expected = {"operations": 2, "commits": 1, "commits_by_read": 1, "groups": 1, "kernels": 1, "library_calls": 0}
    assert {name: stats[name] for name in expected} == expected
    assert stats["bytes_moved"] == 3 * 4000 and stats["temporaries_elided"] == 1
    assert stats["kernels_interpreted"] + stats["kernels_compiled"] == 1
    assert stats["fallbacks"] == 0 and stats["fallbacks_by_name"] == {}


def test_kernels_that_libraries_write_are_calls_of_libraries(device):
    """A device without a library for attention or small products has kernels of the project's own for them."""
    q = torch.randn(1, 2, 200, 64).to(device)
    torch.headrace.reset_stats()
    for _ in range(8):  # from the third time on as graphs, if the device has them
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sin_()
        torch.headrace.synchronize()
    assert y.isfinite().all()
    stats = torch.headrace.stats()
    assert stats["library_calls"] > 0
    assert 0 <= stats["kernels_interpreted"] <= stats["kernels"]


def test_a_loop_that_never_synchronises_finds_its_programs_again():
    step = trainer()
    for _ in range(1500):
        step()
    torch.headrace.reset_stats()
    for _ in range(3000):
        step()
    stats = torch.headrace.stats()
    assert stats["commits_by_limit"] >= 3 or not is_host(), stats
    assert stats["compiles"] == 0 and stats["cache_hits"] == stats["commits"], stats


def test_numbers_are_no_part_of_a_program():
    x = torch.ones(8, device=DEVICE)
    for _ in range(2):  # the first program also fills x
        (x * 0.5).sum().item()
    torch.headrace.reset_stats()
    for k in range(20):
        total = (x * (k / 7)).sum().item()  # not inside an assert, which would keep the product alive
        assert total == pytest.approx(8 * k / 7, rel=1e-6)
    assert torch.headrace.stats()["compiles"] == 0


def test_300_sequence_lengths_leave_memory_and_cache_bounded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 50)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.headrace.synchronize()
    torch.headrace.empty_cache()
    before, peaks = torch.headrace.memory_reserved(), []
    for length in list(range(1, 301)) * 2:
        tokens = (torch.arange(length) % 50).to(DEVICE)
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), tokens).backward()
        optimizer.step()
        if length % 100 == 0:
            torch.headrace.synchronize()
            peaks.append(torch.headrace.memory_reserved())
    torch.headrace.synchronize()
    stats = torch.headrace.stats()
    assert stats["cache_entries"] <= 1024
    assert peaks[-1] <= 1.25 * peaks[2] + (1 << 20), peaks  # the second round needs no more than the first
    assert torch.headrace.memory_reserved() < before + (32 << 20)


def random_program(seed, device):
    """A short program of element-wise operations, reductions and writes through views; gives all it made."""
    generator = torch.Generator().manual_seed(seed)
    pick = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
    pool = [torch.randn(7, 33, generator=generator).to(device) for _ in range(3)]
    for _ in range(12):
        a, b = pool[pick(len(pool))], pool[pick(len(pool))]
        kind = pick(7)
        if kind == 0:
            pool.append(a * b + 0.25)
        elif kind == 1:
            pool.append((a - b).tanh())
        elif kind == 2:
            pool.append(a.softmax(pick(2)))
        elif kind == 3:
            pool.append(a - a.mean(pick(2), keepdim=True))
        elif kind == 4:
            a[:, ::2] += b[:, 1::2].sum(1, keepdim=True)
        elif kind == 5:
            a[1:].copy_(a[:-1].clone())
        else:
            pool.append(torch.where(a > 0, b.sigmoid(), a.exp().clamp(max=9)))
    return [tensor.cpu() for tensor in pool]


@pytest.mark.parametrize("seed", range(25))
def test_all_modes_give_the_same_bits(seed, fuse):
    made = {}
    for mode in ("strict", "eager", "fuse"):
        torch.headrace.set_mode(mode)
        made[mode] = random_program(seed, DEVICE)
    for mode in ("eager", "fuse"):
        for expected, actual in zip(made["strict"], made[mode], strict=True):
            assert torch.equal(expected.nan_to_num(7), actual.nan_to_num(7))


@pytest.mark.parametrize("name", CASES)
def test_networks_compile_in_their_first_steps_alone(name):
    """Dropout draws new numbers and the schedule another learning rate at each step: neither is part of a program."""
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build(small=True, dropout=0.2).to(DEVICE)
    optimizers = case.optimizers(model, lambda p: torch.optim.Adam(p, lr=1e-3))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]
    batch = tuple(t.to(DEVICE) for t in case.batch(small=True))

    def step():
        case.step(model, optimizers, batch)
        for schedule in schedules:
            schedule.step()
        synchronize()

    for _ in range(3):
        step()
    before = torch.headrace.stats()
    for _ in range(5):
        step()
    after = torch.headrace.stats()
    assert after["compiles"] == before["compiles"]
    assert after["cache_hits"] - before["cache_hits"] == after["commits"] - before["commits"] >= 5
    assert after["fallbacks"] == before["fallbacks"] == 0


def test_shapes_in_turn_are_all_remembered():
    """The last batch of an epoch is smaller, and evaluation comes between: each has its program."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def epoch():
        model.train()
        for count in (16, 16, 5):
            optimizer.zero_grad()
            model(torch.ones(count, 6, device=DEVICE)).square().mean().backward()
            optimizer.step()
            synchronize()
        model.eval()
        with torch.no_grad():
            model(torch.ones(9, 6, device=DEVICE)).sum().item()

    for _ in range(3):
        epoch()
    before = torch.headrace.stats()["compiles"]
    for _ in range(3):
        epoch()
    assert torch.headrace.stats()["compiles"] == before


def test_memory_of_dropped_tensors_comes_back():
    synchronize()
    before = torch.headrace.memory_allocated()
    for _ in range(50):
        x = torch.ones(1 << 20, device=DEVICE)
        (x + 1).mul_(2)
        synchronize()
    del x
    synchronize()
    assert torch.headrace.memory_allocated() <= before + (9 << 20)
    torch.headrace.empty_cache()
    assert torch.headrace.memory_reserved() <= torch.headrace.memory_allocated() + (8 << 20)


def test_a_long_loop_without_reading_holds_little_memory():
    """Pending work is bounded: a loop that makes and drops tensors doesn't accumulate them."""
    synchronize()
    torch.headrace.reset_peak_memory_stats()
    before = torch.headrace.memory_allocated()
    x = torch.zeros(1 << 16, device=DEVICE)
    for _ in range(5000):
        x = (x + 1) * 0.5
    assert x[0].item() == pytest.approx(1.0)
    assert torch.headrace.max_memory_allocated() - before < 64 << 20


def test_counters_add_up():
    synchronize()
    torch.headrace.reset_stats()
    x = torch.ones(100, device=DEVICE)
    for _ in range(10):
        x = x * 2
    total = x.sum().item()
    stats = torch.headrace.stats()
    assert total == 100 * 2**10
    assert stats["operations"] >= 12
    assert stats["commits"] == stats["commits_by_read"] == 1
    assert stats["temporaries_elided"] >= 9
    assert 1 <= stats["kernels"] + stats["library_calls"] <= 3
    assert stats["bytes_copied_out"] == 4


def updates(mode):
    """Clipping, Adam, a moving average and zeroing of parameters of many sizes, three times."""
    torch.headrace.set_mode(mode)
    torch.manual_seed(3)
    sizes = [(7,), (64, 33), (1,), (300, 200), (5, 4, 3), (100,), (40, 40), (2, 9)]
    parameters = [nn.Parameter(torch.randn(size).to(DEVICE)) for size in sizes]
    averages = [torch.zeros_like(p) for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(3):
        for p in parameters:
            p.grad = (p.detach() * 3).sin()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        synchronize()
        torch.headrace.reset_stats()
        optimizer.step()
        synchronize()
        stats = torch.headrace.stats()
        torch._foreach_lerp_(averages, [p.detach() for p in parameters], 0.1)
        optimizer.zero_grad(set_to_none=False)
    results = [t.detach().cpu() for p, a in zip(parameters, averages) for t in (p, a, p.grad)]
    return results, stats


def test_parameters_are_updated_in_one_launch_with_the_same_bits(fuse):
    strict, _ = updates("strict")
    fused, stats = updates("fuse")
    assert stats["groups"] == 8 and stats["kernels"] == 1
    assert all(torch.equal(a, b) for a, b in zip(strict, fused))


SETTLES = """
import torch
import headrace.torch
layers = [torch.nn.Linear(24, 24) if i % 2 == 0 else torch.nn.Tanh() for i in range(9)]
model = torch.nn.Sequential(*layers).to("headrace")
optimizer = torch.optim.Adam(model.parameters())
x = torch.ones(8, 24).to("headrace")
before = None
for step in range(16):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    torch.headrace.commit()
    loss.backward()
    torch.headrace.commit()
    optimizer.step()
    torch.headrace.synchronize()
    stats = torch.headrace.stats()
    if before is not None:
        print(*(stats[k] - before[k] for k in ("commits", "graph_launches", "graph_builds")))
    before = stats
"""


def test_a_loop_that_has_settled_is_launched_as_graphs():
    env = {**os.environ, "HEADRACE_DEVICE": "null", "HEADRACE_ONEDNN": "/nowhere", "HEADRACE_GRAPHS": "on"}
    env.pop("HEADRACE_DEBUG", None)
    out = subprocess.run([sys.executable, "-c", SETTLES], capture_output=True, text=True, check=True, env=env).stdout
    steps = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert steps[-4:] == [(3, steps[-1][1], 0)] * 4 and steps[-1][1] >= 2, steps


def test_a_value_larger_than_what_may_be_pending_is_fused_away(fuse):
    """Held by the program while it is recorded, and 3.6 GB if it were stored."""
    torch.headrace.set_mode("fuse")
    a, b = torch.ones(30000, device=DEVICE), torch.ones(30000, device=DEVICE)
    a[::2], b[::3] = -1, -1
    torch.headrace.synchronize()
    torch.headrace.reset_peak_memory_stats()
    before = torch.headrace.memory_allocated()
    products = a.unsqueeze(1) * b.unsqueeze(0)
    rows = (products > 0).float().sum(1)
    del products
    assert rows.cpu().unique().tolist() == [10000, 20000]
    assert torch.headrace.max_memory_allocated() - before < 1 << 28
