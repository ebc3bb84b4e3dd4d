"""Sparse tensors: indices and values on the device, everything against torch's CPU device."""

import io

import pytest
import torch
from support import DEVICE, assert_same

INDICES = torch.tensor([[0, 1, 0, 2, 1], [1, 0, 1, 2, 0]])  # two places twice
SHAPE = (3, 4)


def coo(where, dtype=torch.float32, dense=()):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn((5, *dense), generator=generator, dtype=torch.float64).mul(4).to(dtype)
    return torch.sparse_coo_tensor(INDICES.to(where), values.to(where), (*SHAPE, *dense))


def matrix(where, rows, columns, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows * 10 + columns)
    return torch.randn((rows, columns), generator=generator, dtype=torch.float64).to(dtype).to(where)


def csr(where):
    return matrix("cpu", *SHAPE).relu().to(where).to_sparse_csr()


def plain(tensor):
    return tensor.detach().cpu().to_dense() if tensor.layout != torch.strided else tensor.detach().cpu()


def leaf(tensor):
    return tensor.detach().requires_grad_()


def gradients(function, *inputs):
    inputs = [leaf(t) for t in inputs]
    result = function(*inputs)
    (result.to_dense() if result.layout != torch.strided else result).pow(2).sum().backward()
    return [t.grad for t in inputs]


# Each takes the device, and gives a tensor or a list of them.
COO = {
    "to dense": lambda w: coo(w).to_dense(),
    "coalesce": lambda w: coo(w).coalesce(),
    "indices of coalesced": lambda w: coo(w).coalesce().indices(),
    "values of coalesced": lambda w: coo(w, dense=(2,)).coalesce().values(),
    "coalesce of truth": lambda w: coo(w, torch.bool).coalesce(),
    "coalesce of integers": lambda w: coo(w, torch.int16).coalesce(),
    "coalesce of complex": lambda w: coo(w, torch.complex64).coalesce(),
    "coalesce of nothing": lambda w: torch.sparse_coo_tensor(size=(2, 3), device=w).coalesce(),
    "to_sparse": lambda w: matrix(w, 3, 4).relu().to_sparse(),
    "to_sparse of rows": lambda w: matrix(w, 3, 4).relu().to_sparse(1),
    "to_sparse of zeros": lambda w: torch.zeros(3, 4, device=w).to_sparse(),
    "to_sparse of a number": lambda w: torch.tensor(2.0, device=w).to_sparse(),
    "add": lambda w: coo(w) + coo(w),
    "add of coalesced": lambda w: coo(w).coalesce() + coo(w).coalesce() * 2,
    "add to dense": lambda w: matrix(w, 3, 4) + coo(w),
    "add scaled to dense": lambda w: torch.add(matrix(w, 3, 4), coo(w), alpha=-0.5),
    "add in place": lambda w: matrix(w, 3, 4).add_(coo(w), alpha=0.5),
    "add to a transposed": lambda w: matrix(w, 4, 3).t().add_(coo(w)),
    "add of rows": lambda w: torch.ones(3, 4, 2, device=w) + coo(w, dense=(2,)),
    "add of two types": lambda w: matrix(w, 3, 4, torch.float64) + coo(w),
    "add sparse in place": lambda w: coo(w).add_(coo(w)),
    "sub": lambda w: coo(w) - coo(w) * 0.25,
    "mul by a number": lambda w: coo(w) * 2.5,
    "mul by dense": lambda w: coo(w) * matrix(w, 3, 4),
    "mul of dense by it": lambda w: matrix(w, 3, 4) * coo(w),
    "mul by a row": lambda w: coo(w) * matrix(w, 1, 4),
    "mul by sparse": lambda w: (coo(w) * matrix(w, 3, 4).abs().to_sparse()).to_dense(),
    "mul by a sparser one": lambda w: (coo(w) * torch.eye(3, 4, device=w).to_sparse()).to_dense(),
    "mul in place": lambda w: coo(w).mul_(3),
    "div": lambda w: coo(w) / 2.5,
    "neg": lambda w: -coo(w).coalesce(),
    "sin": lambda w: coo(w).sin(),
    "sqrt in place": lambda w: coo(w).coalesce().abs().sqrt_(),
    "pow": lambda w: coo(w).coalesce().pow(2),
    "transposed": lambda w: coo(w).t(),
    "permuted": lambda w: coo(w, dense=(2,)).permute(1, 0, 2),
    "unsqueezed": lambda w: coo(w).unsqueeze(1),
    "cat": lambda w: torch.cat([coo(w), coo(w)]),
    "stack": lambda w: torch.stack([coo(w), coo(w)]),
    "sum": lambda w: coo(w).sum(),
    "sum of rows": lambda w: torch.sparse.sum(coo(w), 0),
    "norm": lambda w: coo(w).norm(),
    "clone": lambda w: coo(w).clone(),
    "zero_": lambda w: coo(w).zero_(),
    "to f64": lambda w: coo(w).to(torch.float64),
    "there and back": lambda w: coo("cpu").to(w).to("cpu").to(w),
    "index_select": lambda w: coo(w).index_select(0, torch.tensor([2, 0, 0], device=w)),
    "index_select of columns": lambda w: coo(w).index_select(1, torch.tensor([3, 1], device=w)),
    "index_select of dense": lambda w: coo(w, dense=(2,)).index_select(2, torch.tensor([1], device=w)),
    "sparse_mask": lambda w: matrix(w, 3, 4).sparse_mask(coo(w).coalesce()),
    "narrow_copy": lambda w: coo(w).narrow_copy(0, 1, 2),
    "mm": lambda w: torch.mm(coo(w), matrix(w, 4, 2)),
    "mm of f64": lambda w: coo(w, torch.float64) @ matrix(w, 4, 2, torch.float64),
    "mv": lambda w: coo(w) @ matrix(w, 4, 1).squeeze(1),
    "addmm": lambda w: torch.sparse.addmm(matrix(w, 3, 2), coo(w), matrix(w, 4, 2), beta=0.5, alpha=2),
    "mm of sparse": lambda w: torch.sparse.mm(coo(w), coo(w).t()),
    "bmm": lambda w: torch.bmm(torch.stack([coo(w), coo(w) * 2]), matrix(w, 8, 3).reshape(2, 4, 3)),
    "gradient of to_sparse": lambda w: gradients(lambda x: x.to_sparse(), matrix(w, 3, 4).relu()),
    "gradient of mm": lambda w: gradients(torch.sparse.mm, coo(w).coalesce(), matrix(w, 4, 2)),
    "gradient of an embedding": lambda w: gradients(
        lambda x: torch.nn.functional.embedding(INDICES.to(w), x, sparse=True, padding_idx=2), matrix(w, 5, 3)
    ),
    "gradient of bags": lambda w: gradients(
        lambda x: torch.nn.functional.embedding_bag(INDICES.to(w), x, mode="mean", sparse=True), matrix(w, 5, 3)
    ),
}

CSR = {
    "to_sparse_csr": lambda w: csr(w),
    "row starts": lambda w: csr(w).crow_indices(),
    "from coordinates": lambda w: coo(w).coalesce().to_sparse_csr(),
    "to coordinates": lambda w: csr(w).to_sparse(),
    "columns": lambda w: matrix(w, 3, 4).relu().to_sparse_csc(),
    "blocks": lambda w: matrix(w, 4, 4).relu().to_sparse_bsr((2, 2)),
    "batches": lambda w: torch.stack([matrix("cpu", 3, 4), matrix("cpu", 3, 4)]).to(w).to_sparse_csr(),
    "from its parts": lambda w: torch.sparse_csr_tensor(
        *(torch.tensor(x, device=w) for x in ([0, 1, 3], [1, 0, 2], [1.0, 2, 3]))
    ),
    "mm": lambda w: csr(w) @ matrix(w, 4, 2),
    "mm by it": lambda w: matrix(w, 2, 3) @ csr(w),
    "mv": lambda w: csr(w) @ matrix(w, 4, 1).squeeze(1),
    "add": lambda w: csr(w) + csr(w),
    "mul by a number": lambda w: csr(w) * 2,
    "sin": lambda w: csr(w).sin(),
    "rows to columns": lambda w: csr(w).to_sparse_csc(),
    "columns to rows": lambda w: matrix(w, 3, 4).relu().to_sparse_csc().to_sparse_csr(),
    "rows to columns, none": lambda w: torch.zeros(3, 0, device=w).to_sparse_csr().to_sparse_csc(),
    "rows to columns, batches": lambda w: (
        (torch.ones(2, 3, 4, device=w) * csr(w).to_dense()).to_sparse_csr().to_sparse_csc()
    ),
    "rows to columns, dense": lambda w: matrix(w, 3, 8).reshape(3, 4, 2).to_sparse_csr(dense_dim=1).to_sparse_csc(),
    "blocks to columns": lambda w: matrix(w, 4, 6).relu().to_sparse_bsr((2, 3)).to_sparse_bsc((2, 3)),
    "blocks to rows": lambda w: matrix(w, 6, 4).relu().to_sparse_bsc((3, 2)).to_sparse_bsr((3, 2)),
    "parts of rows to columns": lambda w: [csr(w).to_sparse_csc().ccol_indices(), csr(w).to_sparse_csc().row_indices()],
    "sampled_addmm": lambda w: torch.sparse.sampled_addmm(csr(w), matrix(w, 3, 2), matrix(w, 2, 4), beta=0.5),
    **{f"mm, {r}": lambda w, r=r: torch.sparse.mm(csr(w), matrix(w, 4, 2), r) for r in ("sum", "mean", "amax", "amin")},
    **{
        f"gradient of mm, {r}": lambda w, r=r: gradients(lambda a, b: torch.sparse.mm(a, b, r), csr(w), matrix(w, 4, 2))
        for r in ("mean", "amax")
    },
}


def check(function, device):
    actual, expected = function(device), function("cpu")
    for a, e in zip(*((x if isinstance(x, list) else [x] for x in (actual, expected))), strict=True):
        assert a.device.type == DEVICE.type and a.layout == e.layout
        if e.layout == torch.sparse_coo:
            assert a.is_coalesced() == e.is_coalesced()
            assert (a.sparse_dim(), a.dense_dim()) == (e.sparse_dim(), e.dense_dim())
        assert_same(plain(a), plain(e))


@pytest.mark.device_only
@pytest.mark.parametrize("name", COO)
def test_coordinates(name, device):
    check(COO[name], device)


@pytest.mark.device_only
@pytest.mark.parametrize("name", CSR)
def test_rows(name, device):
    check(CSR[name], device)


@pytest.mark.device_only
def test_indices_of_another_size_are_refused(device):
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        outside = torch.sparse_coo_tensor(torch.tensor([[7]], device=device), torch.ones(1, device=device), (3,))
        outside.to_dense().cpu()
    parts = (torch.tensor(x, device=device) for x in ([0, 1, 3], [1, 0, 9], [1.0, 2, 3]))
    with pytest.raises(RuntimeError, match="col_indices"):
        torch.sparse_csr_tensor(*parts, (2, 3), check_invariants=True)


@pytest.mark.device_only
def test_equal_places_add_up_in_order(device):
    """As many terms as the order shows in: the sum is the one that a loop over them gives."""
    values = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    indices = torch.randint(0, 3, (1, 4096), generator=torch.Generator().manual_seed(1))
    actual = torch.sparse_coo_tensor(indices.to(device), values.to(device), (3,)).coalesce().values().cpu()
    sums = torch.zeros(3)
    for place, value in zip(indices[0], values):
        sums[place] += value
    assert_same(actual, sums, rtol=1e-5, atol=1e-4)


@pytest.mark.device_only
@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1), torch.optim.Adagrad, torch.optim.SparseAdam])
def test_embedding_trains_sparsely(make, device):
    def train(where):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(20, 4, sparse=True).to(where)
        optimizer = make(list(layer.parameters()))
        for step in range(4):
            optimizer.zero_grad()
            layer(torch.tensor([1, 5, 1, step], device=where)).pow(2).sum().backward()
            assert layer.weight.grad.is_sparse
            optimizer.step()
        return layer.weight.detach()

    assert_same(train(device), train("cpu"))


@pytest.mark.device_only
def test_saved_and_printed(device):
    file = io.BytesIO()
    torch.save(coo(device), file)
    file.seek(0)
    again = torch.load(file)
    assert again.device.type == DEVICE.type
    assert_same(plain(again), plain(coo("cpu")))
    assert f"device='{again.device}'" in repr(again) and "nnz=5" in repr(again)


@pytest.mark.device_only
def test_what_is_missing_says_so_or_runs_on_the_host(device):
    with pytest.raises(NotImplementedError, match="_sparse_softmax.*HEADRACE_FALLBACK"):
        torch.sparse.softmax(coo(device), 1)
    torch.headrace.set_fallback("allow")
    try:
        actual = torch.sparse.softmax(coo(device), 1)
    finally:
        torch.headrace.set_fallback("error")
    assert actual.device.type == DEVICE.type and actual.is_sparse
    assert_same(plain(actual), plain(torch.sparse.softmax(coo("cpu"), 1)))
