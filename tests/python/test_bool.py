"""Bool tensors: accumulating writes, numbers that become bools, and memory that other dtypes see as well."""

import math

import pytest
import torch
from support import DEVICE, assert_same

COUNTS = [1, 2, 255, 256, 257]

# Each takes a bool target of 3 elements, places and true values.
ACCUMULATE = {
    "index_add_": lambda m, i, v: m.index_add_(0, i, v),
    "scatter_add_": lambda m, i, v: m.scatter_add_(0, i, v),
    "index_put_": lambda m, i, v: m.index_put_((i,), v, accumulate=True),
    "put_": lambda m, i, v: m.put_(i, v, accumulate=True),
    "scatter_reduce_ sum": lambda m, i, v: m.scatter_reduce_(0, i, v, "sum"),
    "scatter_reduce_ sum alone": lambda m, i, v: m.scatter_reduce_(0, i, v, "sum", include_self=False),
    "scatter_reduce_ prod": lambda m, i, v: m.scatter_reduce_(0, i, v, "prod"),
    "scatter_reduce_ prod alone": lambda m, i, v: m.scatter_reduce_(0, i, v, "prod", include_self=False),
    "scatter_reduce_ amax": lambda m, i, v: m.scatter_reduce_(0, i, v, "amax"),
    "scatter_reduce_ amin": lambda m, i, v: m.scatter_reduce_(0, i, v, "amin"),
    "scatter_ add": lambda m, i, v: m.scatter_(0, i, v, reduce="add"),
    "scatter_ multiply": lambda m, i, v: m.scatter_(0, i, v, reduce="multiply"),
    "scatter_ add of a number": lambda m, i, v: m.scatter_(0, i, True, reduce="add"),
}
# All ways to read a bool.
LOOKS = {
    "~": lambda m: ~m,
    "==": lambda m: m == True,  # noqa: E712
    "long": lambda m: m.long(),
    "sum": lambda m: m.sum(),
    "float": lambda m: m.float(),
    "xor": lambda m: m ^ True,
    "and": lambda m: m & m,
    "select": lambda m: torch.arange(3, device=m.device)[m],
    "where": lambda m: torch.where(m, 2, 3),
    "values": lambda m: torch.tensor(m.view(torch.uint8).tolist()),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ACCUMULATE)
def test_accumulating_into_bools_keeps_bools(name, count):
    def run(device, look):
        target = torch.tensor([False, True, False], device=device)
        places = torch.zeros(count, dtype=torch.long, device=device)
        places[count // 2 :] = 1
        values = torch.ones(count, dtype=torch.bool, device=device)
        return look(ACCUMULATE[name](target, places, values))

    for what, look in LOOKS.items():
        assert_same(run(DEVICE, look), run("cpu", look), f"{name} of {count}, {what}")


def test_one_hot_of_a_mask_that_was_accumulated():
    mask = torch.zeros(4, dtype=torch.bool, device=DEVICE)
    mask.index_add_(0, torch.tensor([1, 1, 1], device=DEVICE), torch.ones(3, dtype=torch.bool, device=DEVICE))
    assert torch.nn.functional.one_hot(mask.long(), 2).tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]


NUMBERS = [0.5, -0.25, math.inf, math.nan, 2**40, 1e30, 256, 2, 0, 0.0, -0.0, True]
FILLS = {
    "masked_fill": lambda z, m, v: z.masked_fill(m, v),
    "masked_fill_": lambda z, m, v: z.masked_fill_(m, v),
    "fill_": lambda z, m, v: z.fill_(v),
    "full": lambda z, m, v: torch.full((3,), v, dtype=torch.bool, device=z.device),
    "full_like": lambda z, m, v: torch.full_like(z, v),
    "new_full": lambda z, m, v: z.new_full((3,), v),
    "index_fill": lambda z, m, v: z.index_fill(0, torch.tensor([1], device=z.device), v),
    "scatter": lambda z, m, v: z.scatter(0, torch.tensor([1], device=z.device), v),
    "set a mask": lambda z, m, v: z.__setitem__(m, v) or z,
    "set a slice": lambda z, m, v: z.__setitem__(slice(1, 3), v) or z,
    "where": lambda z, m, v: torch.where(m, v, z).bool(),
    "pad": lambda z, m, v: torch.nn.functional.pad(z, (1, 1), value=v),
    "add": lambda z, m, v: z.add(m, alpha=v),
    "or": lambda z, m, v: torch.logical_or(z, torch.tensor(v, device=z.device)),
    "masked_fill of a tensor": lambda z, m, v: z.masked_fill(m, torch.tensor(v)),
}


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("name", FILLS)
def test_a_number_is_true_unless_it_is_zero(name, number):
    results = []
    for device in ("cpu", DEVICE):
        zeros, mask = torch.zeros(3, dtype=torch.bool, device=device), torch.tensor([True, False, True], device=device)
        try:
            results.append(FILLS[name](zeros, mask, number).cpu())
        except (RuntimeError, OverflowError) as error:
            results.append(type(error))
    if isinstance(results[0], torch.Tensor):
        assert_same(results[1], results[0], name)
    else:
        assert results[0] == results[1]


BYTES = [0, 1, 2, 255, 128, 0]


@pytest.mark.parametrize(
    "look", [*list(LOOKS)[:7], "all", "any", "item", "or in place", "sort", "cat", "nonzero", "expand"]
)
def test_bytes_seen_as_bool_are_true_unless_they_are_zero(look):
    looks = LOOKS | {
        "all": lambda m: m[1:5].all(),
        "any": lambda m: m[2:3].any(),
        "item": lambda m: torch.tensor([m[i].item() for i in range(6)]),
        "or in place": lambda m: m.logical_or_(torch.zeros_like(m)).long(),
        "sort": lambda m: m.long().sort()[0],
        "cat": lambda m: torch.cat([m, m]).long(),
        "nonzero": lambda m: m.nonzero(),
        "expand": lambda m: m[::2].unsqueeze(1).expand(3, 2).long(),
    }
    wanted, found = (
        looks[look](torch.tensor(BYTES, dtype=torch.uint8, device=d).view(torch.bool)) for d in ("cpu", DEVICE)
    )
    if wanted.dtype == torch.bool:  # some of torch's kernels keep the bytes
        wanted, found = wanted.view(torch.uint8) != 0, found.cpu().view(torch.uint8) != 0
    assert_same(found, torch.tensor(BYTES).bool().logical_not() if look == "~" else wanted, look)


def test_bools_whose_bytes_were_written_as_numbers():
    mask = torch.zeros(3, dtype=torch.bool, device=DEVICE)
    mask.view(torch.uint8).copy_(torch.tensor([0, 7, 1], dtype=torch.uint8))
    assert mask.long().tolist() == [0, 1, 1] and mask.sum().item() == 2 and (~mask).tolist() == [True, False, False]
    assert mask.view(torch.uint8).tolist() == [0, 7, 1]


@pytest.mark.device_only
@pytest.mark.parametrize("mode", ["fuse", "strict"])
def test_results_behind_mixed_memory_have_memory_of_their_own(mode):
    torch.headrace.set_mode(mode)
    mask = torch.tensor(BYTES, dtype=torch.uint8, device=DEVICE).view(torch.bool)
    results = [mask.prod(0) if i % 3 == 0 else mask.long() + i if i % 3 == 1 else mask.logical_not() for i in range(60)]
    for i, result in enumerate(results):
        whole = torch.empty(0, dtype=torch.uint8, device=DEVICE).set_(result.untyped_storage())
        assert whole.cpu().numel() == result.untyped_storage().nbytes()
        wanted = [0] if i % 3 == 0 else [i, 1 + i, 1 + i, 1 + i, 1 + i, i] if i % 3 == 1 else [1, 0, 0, 0, 0, 1]
        assert result.flatten().long().tolist() == wanted, i
