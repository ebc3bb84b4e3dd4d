"""Views that are made without torch's way through as_strided."""

import sys

import pytest
import torch
from support import DEVICE, assert_same

VIEWS = {
    "transpose": lambda t: t.transpose(0, -1),
    "transpose itself": lambda t: t.transpose(1, 1),
    "t": lambda t: t[0].t(),
    "select": lambda t: t.select(1, -2),
    "select first": lambda t: t[0],
    "slice": lambda t: t[:, 1:3],
    "slice by steps": lambda t: t[..., 1::2],
    "slice from the end": lambda t: t[:, -2:],
    "slice beyond": lambda t: t[:, 3:100],
    "empty slice": lambda t: t[:, 3:2],
    "whole": lambda t: t[:],
    "from the largest": lambda t: torch.ops.aten.slice(t, 1, sys.maxsize),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "unsqueeze last": lambda t: t.unsqueeze(-1),
    "unsqueeze first": lambda t: t.transpose(0, 2).unsqueeze(-4),
    "split": lambda t: t.split(3, 2)[1],
    "split rest": lambda t: t.split(4, -1)[-1],
    "split whole": lambda t: t.split(100, 1)[0],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "of a view": lambda t: t[1:, :, 1:].transpose(1, 2)[0].split(2)[1],
    "conjugate": lambda t: t.to(torch.complex64).mul(1j).conj().transpose(0, 1)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_torchs(name):
    host = torch.arange(2 * 4 * 6, dtype=torch.float32).view(2, 4, 6)
    mine, torchs = VIEWS[name](host.to(DEVICE)), VIEWS[name](host)
    assert mine.stride() == torchs.stride() and mine.storage_offset() == torchs.storage_offset()
    assert mine.is_conj() == torchs.is_conj()
    assert_same(mine, torchs)
    leaf = [t.clone().requires_grad_() for t in (host.to(DEVICE), host)]
    for t in leaf:
        VIEWS[name](t * 2).abs().sum().backward()
    assert_same(leaf[0].grad, leaf[1].grad)


def test_views_refuse_what_torch_refuses():
    t = torch.zeros(2, 3).to(DEVICE)
    for wrong in (
        lambda: t.transpose(0, 2),
        lambda: t.select(0, 2),
        lambda: t.select(0, -3),
        lambda: t.unsqueeze(3),
        lambda: t.split(-1),
        lambda: t.sum().select(0, 0),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            wrong()


def test_views_share_their_base():
    base = torch.zeros(4, 6).to(DEVICE)
    for view in (base.t(), base[1], base[:, 2:], base.unsqueeze(0), base.split(3, 1)[1]):
        assert view._base is base
        before = base._version
        view.add_(1)
        assert base._version == before + 1 == view._version
    expected = torch.zeros(4, 6)
    for view in (expected.t(), expected[1], expected[:, 2:], expected.unsqueeze(0), expected.split(3, 1)[1]):
        view.add_(1)
    assert_same(base, expected)
    x = torch.ones(3, 3).to(DEVICE).requires_grad_()
    y = x * 2
    z = y[0].square()
    y[0].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
