"""Gather, scatter, embeddings, joining, views and factories against torch's CPU device, forward and backward."""

import torch
import torch.nn.functional as F
from op_support import FLOATS, LAYOUTS, check, check_summed, numbers
from support import DEVICE, assert_same


def test_embedding():
    for dtype in FLOATS:
        table = numbers((9, 5), dtype)
        for shape in ((4,), (2, 3), (), (0,)):
            index = torch.randint(9, shape, generator=torch.Generator().manual_seed(3))
            check_summed(lambda i, t: F.embedding(i, t), index, table)
            check_summed(lambda i, t: F.embedding(i.int(), t), index, table)
        repeated = torch.tensor([1, 1, 1, 2, 0, 1])
        check_summed(lambda i, t: F.embedding(i, t), repeated, table)
        check_summed(lambda i, t: F.embedding(i, t, padding_idx=1), repeated, table)
        check_summed(lambda i, t: F.embedding(i, t, scale_grad_by_freq=True), repeated, table)
    check_summed(lambda i, t: F.embedding(i.t(), t), torch.arange(6).view(2, 3), table)


def test_gather_and_index_select():
    x = numbers((4, 5, 3))
    for dim in range(3):
        index = torch.randint(x.shape[dim], (2, 3, 2), generator=torch.Generator().manual_seed(dim))
        for layout in LAYOUTS:
            check_summed(lambda x, i, d=dim: x.gather(d, i), x, index, layout=layout)
            check_summed(lambda x, i, d=dim: x.index_select(d, i), x, index[:, 0, 0].contiguous(), layout=layout)
    check(lambda x, i: x.gather(0, i), x.long(), index)
    check(lambda x, i: x.index_select(0, i), x, torch.tensor([], dtype=torch.long))
    check(lambda x, i: x.take_along_dim(i, 1), x, torch.tensor([[[1], [0]]]).expand(4, 2, 3))


def test_scatter():
    x, source = numbers((4, 5)), numbers((3, 5), seed=1)
    distinct = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 1], [2, 3, 0, 1, 2]])
    repeated = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 3, 0, 1], [0, 0, 0, 0, 0]])
    for layout in LAYOUTS:
        check_summed(lambda x, i, s: x.scatter(0, i, s), x, distinct, source, layout=layout)
        check_summed(lambda x, i, s: x.scatter_add(0, i, s), x, repeated, source, layout=layout)
        check_summed(lambda x, i: x.scatter(1, i, 2.5), x, distinct, layout=layout)
        check_summed(lambda x, i, s: x.index_add(0, i[:, 0], s), x, repeated, source, layout=layout)
    check(lambda x, i, s: x.scatter_add(0, i, s), x.long(), repeated, source.long())
    check_summed(lambda i: F.one_hot(i, 7), torch.tensor([0, 3, 6]))


def test_indexing():
    x = numbers((4, 5, 3))
    i, j, mask = torch.tensor([0, 3, 3, -1]), torch.tensor([1, -5, 4, 0]), numbers((4, 5, 3), torch.bool)
    for layout in LAYOUTS:
        check_summed(lambda x, i: x[i], x, i, layout=layout)
        check_summed(lambda x, i, j: x[i, j], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[i, :, j % 3], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[:, j], x, i, j, layout=layout)
        check_summed(lambda x, i, j: x[i[:, None] % 4, j[None] % 5, 1], x, i, j, layout=layout)
    check_summed(lambda x, m: torch.where(m, x, 0.0).sum(), x, mask)


def test_index_put():
    x, values = numbers((4, 5)), numbers((4,), seed=1)
    i, j = torch.tensor([0, 3, 3, 0]), torch.tensor([1, 4, 4, 1])

    def assign(x, i, j, v):
        y = x.clone()
        y[i[:2], j[:2]] = v[:2]
        y[2] = v[0]
        y[1:3, ::2] = v[1]
        y[i[:1]] = v[3]
        return y

    def accumulate(x, i, j, v):
        return x.index_put((i, j), v, accumulate=True), x.clone().index_put_((i,), v[:1], accumulate=True)

    for layout in LAYOUTS:
        check_summed(assign, x, i, j, values, layout=layout)
        check_summed(accumulate, x, i, j, values, layout=layout)
    check(lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), x.long(), i, j, values.long())


def test_joining_and_splitting():
    parts = [numbers((2, n, 3), seed=n) for n in (1, 4, 0, 2)]
    for layout in LAYOUTS:
        check(lambda *p: torch.cat(p, 1), *parts, layout=layout)
        check(lambda *p: torch.cat([t.transpose(1, 2) for t in p], -1), *parts, layout=layout)
    check(lambda *p: torch.cat(p), torch.ones(0), numbers((2, 3)), numbers((1, 3), seed=2))
    check(lambda x, y: torch.cat([x, y]), numbers((3,), torch.int64), numbers((2,)))
    check(lambda x, y: torch.stack([x, y], 1), numbers((3, 4)), numbers((3, 4), seed=1))
    check(lambda x: torch.split(x, [1, 3, 2], 1), numbers((2, 6)))
    check(lambda x: x.chunk(3, 1), numbers((2, 7)))
    check(lambda x: x.unbind(1), numbers((2, 3, 4)))
    check(lambda x: x.repeat(2, 3, 1), numbers((2, 3)))
    check(lambda x: torch.tile(x, (2,)), numbers((2, 3)))
    check(lambda x: x.flip(0, 2), numbers((2, 3, 4)))
    check(lambda x: F.pad(x, (1, 2, 0, 3), value=1.5), numbers((2, 3, 4)))
    check(lambda x: F.pad(x, (-1, 2)), numbers((2, 3, 4)))
    check(torch.tril, numbers((2, 4, 5)))
    check(lambda x: torch.triu(x, 1), numbers((4, 5)))
    check(lambda x: x.cumsum(1), numbers((3, 5)), rtol=1e-5, atol=1e-5)


def test_running_sums_of_long_lines():
    """All layouts of lines: rows, columns, transposed, every second one, backwards by a flip, in place."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool):
        x = numbers((40, 300), torch.float32).mul(3).to(dtype)
        bounds = {"rtol": 2e-2, "atol": 1e-2} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-4}
        for along in (0, 1):
            check(lambda x, along=along: x.cumsum(along), x, **bounds)
            check(lambda x, along=along: x.t().cumsum(along), x, **bounds)
    wide = numbers((9, 700, 2), torch.float64)
    check(lambda x: x.cumsum(1), wide)
    check(lambda x: x[:, ::2].cumsum(1), wide)
    check(lambda x: x[::2, 3:, 1].cumsum(-1), wide)
    check(lambda x: x.flip(1).cumsum(1).flip(1), wide)
    check(lambda x: x.clone().cumsum_(1), wide)
    check(lambda x: x[..., :1].expand(9, 700, 5).cumsum(1), wide)
    check(lambda x: torch.stack([x.cumsum(1)[:, -1], x.sum(1)]), torch.zeros(3, 400).copysign(torch.tensor(-1.0)))
    special = numbers((600,))
    special[300], special[450] = float("inf"), float("nan")
    check(lambda x: x.cumsum(0), special, rtol=1e-5, atol=1e-4)
    check(lambda x: x.nonzero(), numbers((70, 300)) > 0)
    for sign in (1, -1):  # the wrong result of a window of several numbers
        special[310] = sign * float("inf")
        check(lambda x: x[:440].cumsum(0), special)
        check(lambda x: x[:440].cumprod(0), special)
    for number in (3e38, 1e-30):
        check(lambda x: x.cumsum(0), torch.full((3000,), number), rtol=1e-6)
        check(lambda x: x.cumprod(0), torch.full((3000,), number))
        check(lambda x: x.cumprod(0), torch.full((3000,), number).index_fill(0, torch.tensor(0), 0))
    for shape in ((500, 8), (3, 9, 40), (2, 2100)):
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.bool):
            x = numbers(shape).mul(3).to(dtype)
            check(lambda x: x.cumsum(1), x, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)
            check(lambda x: x.flip(1).cumsum(0), x, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)


def test_places_of_masks():
    for shape in ((), (0,), (1,), (70000,), (300, 257), (3, 4, 5, 6)):
        for above in (-9.0, 0.0, 2.5, 9.0):
            x = numbers(shape)
            check(lambda x: (x > above).nonzero(), x)
            check(lambda x: x[x > above], x)
            check(lambda x: x.masked_select(x > above), x)
            for size in (0, 3, 100):
                check(lambda x: torch.nonzero_static(x > above, size=size), x)
            if len(shape) == 2:
                check(lambda x: x.t()[x.t() > above], x)
                check(lambda x: (x[:, ::3] > above).nonzero(), x)
                check(lambda x: x.masked_select(x[:1] > above), x)


def test_distances():
    for n, m in ((0, 3), (1, 3), (2, 1), (17, 32), (130, 5), (20, 33)):
        for p in (1.0, 2.0, 3.5, float("inf")):
            x = numbers((n, m))
            check(lambda x: F.pdist(x, p), x, grad=n > 1, rtol=1e-5, atol=1e-5)  # torch's gradient of no rows crashes
            check(lambda x: torch.cdist(x, x[:7] + 1, p, "donot_use_mm_for_euclid_dist"), x, rtol=1e-5, atol=1e-5)
            check(lambda x: torch.cdist(x.t(), x.t(), p, "donot_use_mm_for_euclid_dist"), x, rtol=1e-5, atol=1e-5)
    x = numbers((9, 4))
    x[3, 1], x[5, 2] = float("nan"), float("inf")
    check(lambda x: F.pdist(x), x, grad=False, rtol=1e-5, atol=1e-5)
    check(lambda x: F.pdist(x), numbers((701, 3)), grad=False, rtol=1e-5, atol=1e-5)  # in bands
    for p in (1.0, 2.0):
        check(lambda x: F.pdist(x, p), numbers((530, 64)), rtol=1e-4, atol=1e-4)  # the gradient, too
    x = numbers((6, 3))
    x[4] = x[1]  # no distance, no gradient
    check(lambda x: F.pdist(x), x, rtol=1e-5, atol=1e-5)


def test_counts_of_long_lists():
    for count, bins in ((5000, 7), (1001, 50), (100_003, 1000), (64, 3)):
        list_of_numbers = torch.randint(0, bins, (count,))
        for dtype in (torch.int64, torch.int32, torch.uint8) if bins < 256 else (torch.int64,):
            check(torch.bincount, list_of_numbers.to(dtype), grad=False)
            check(lambda x: torch.bincount(x[::3], minlength=2 * bins), list_of_numbers.to(dtype), grad=False)


def test_views_and_their_gradients():
    x = numbers((4, 6, 5))
    views = [
        lambda x: x.view(24, 5),
        lambda x: x.reshape(4, 30)[:, ::7],
        lambda x: x.permute(2, 0, 1).reshape(5, 24),
        lambda x: x.transpose(0, 1)[1:4, ::2],
        lambda x: x[..., None].expand(-1, -1, -1, 2),
        lambda x: x.as_strided((3, 2), (7, 2), 4),
        lambda x: x.diagonal(0, 0, 2),
        lambda x: x.select(1, -1).narrow(0, 1, 2),
        lambda x: x.squeeze().unsqueeze(0).movedim(0, -1),
        lambda x: x.unflatten(1, (2, 3)).flatten(0, 2),
        lambda x: x.T if x.dim() == 2 else x.mT,
    ]
    for view in views:
        check_summed(view, x)
        check_summed(lambda x, view=view: view(x).contiguous() * 2, x)
        check_summed(lambda x, view=view: view(x.exp()).sum(), x, factor=2)
    check(lambda x: x.unfold(1, 3, 2), x, grad=False)


def test_factories():
    pairs = []
    for where in ("cpu", DEVICE):
        options = {"device": where}
        pairs.append(
            [
                torch.zeros(2, 3, **options),
                torch.ones(3, dtype=torch.int64, **options),
                torch.full((2, 2), 2.5, **options),
                torch.full((2,), True, **options),
                torch.arange(5, **options),
                torch.arange(1, 2, 0.3, **options),
                torch.arange(5, 0, -2, dtype=torch.float64, **options),
                torch.eye(3, 4, **options),
                torch.tensor([[1.5, 2], [3, 4]], **options),
                torch.tensor(7, **options),
                torch.ones(3, **options).new_full((2,), 4.0),
                torch.zeros(0, 3, **options),
                torch.linspace(0, 1, 1, **options) if where == "cpu" else torch.zeros(1, **options),
            ]
        )
    for expected, actual in zip(*pairs):
        assert_same(actual, expected)
