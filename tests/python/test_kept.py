"""Weights that a library keeps in a layout of its own between runs: always those of the weights as they are."""

import copy
import gc

import pytest
import torch
from support import DEVICE
from torch import nn

RUNS = 4  # contents are kept when they are seen a second time, and used from the third run on


def kept_bytes() -> int:
    torch.headrace.synchronize()
    return torch.headrace.stats()["cached_weights_bytes"]


def layer(kind: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if kind == "linear":
        return nn.Linear(300, 200), torch.randn(7, 300)
    if kind == "linear_rows":
        return nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 100)), torch.randn(2, 3, 300)
    if kind == "grouped":
        return nn.Conv2d(32, 64, 3, groups=4), torch.randn(2, 32, 9, 9)
    if kind == "depthwise":
        return nn.Conv2d(32, 32, 3, groups=32, bias=False), torch.randn(2, 32, 9, 9)
    conv = nn.Conv2d(16, 32, 3, bias=kind == "conv_norm")
    norm = nn.BatchNorm2d(32, affine=kind == "conv_norm")
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return nn.Sequential(conv, norm, nn.ReLU()).eval(), torch.randn(2, 16, 9, 9)


KINDS = ["linear", "linear_rows", "grouped", "depthwise", "conv_norm", "conv_norm_plain"]


def check(host: nn.Module, device: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        expected, there = host(x), x.to(DEVICE)
        first = device(there).cpu()
        torch.testing.assert_close(first, expected, rtol=2e-4, atol=2e-4)
        for _ in range(RUNS):
            assert torch.equal(device(there).cpu(), first)


def change(model: nn.Module, how: str) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
            noise = torch.rand(tensor.shape, generator=generator).to(tensor.device)
            if how == "add_":
                tensor.add_(noise)
            elif how == "part":
                tensor[:1].copy_(noise[:1])
            elif how == "view":
                tensor.view(-1)[-1] = 3.0
            elif how == "fill":
                tensor.fill_(0.25)
            else:
                tensor.data = noise + 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_changes_between_inferences_are_seen(kind):
    host, x = layer(kind)
    device = copy.deepcopy(host).to(DEVICE)
    check(host, device, x)
    for how in ("add_", "part", "view", "fill", "data"):
        change(host, how)
        change(device, how)
        check(host, device, x)


@pytest.mark.parametrize("kind", KINDS)
def test_training_between_inferences_is_seen(kind):
    host, x = layer(kind)
    device = copy.deepcopy(host).to(DEVICE)
    for _ in range(2):
        check(host, device, x)
        for model, there in ((host, x), (device, x.to(DEVICE))):
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(there).square().mean().backward()
            optimizer.step()
            model.eval()
    check(host, device, x)


@pytest.mark.cpu_only
def test_one_weight_is_kept_once_for_all_shapes_and_goes_with_it():
    gc.collect()
    before = kept_bytes()
    host = nn.Linear(512, 256)
    device = copy.deepcopy(host).to(DEVICE)
    for rows in (40, 19, 33, 40):  # fewer than 16 rows read the weight as it is stored
        check(host, device, torch.randn(rows, 512))
        assert kept_bytes() - before == 512 * 256 * 4
    del device
    gc.collect()
    assert kept_bytes() == before


def test_memory_used_again_is_not_taken_for_what_it_held():
    x = torch.randn(5, 256)
    for seed in range(4):
        torch.manual_seed(seed)
        host = nn.Linear(256, 256)
        check(host, copy.deepcopy(host).to(DEVICE), x)


@pytest.mark.cpu_only
def test_written_weights_are_let_go():
    gc.collect()
    before = kept_bytes()
    host = nn.Linear(512, 256)
    device = copy.deepcopy(host).to(DEVICE)
    check(host, device, torch.randn(24, 512))
    assert kept_bytes() > before
    with torch.no_grad():
        device.weight.zero_()
    assert kept_bytes() == before


def test_a_norm_whose_eps_changes():
    host, x = layer("conv_norm")
    device = copy.deepcopy(host).to(DEVICE)
    for eps in (1e-5, 0.5, 1e-3):
        host[1].eps = device[1].eps = eps
        check(host, device, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights(dtype):
    torch.manual_seed(0)
    host = nn.Linear(320, 192)
    device = copy.deepcopy(host).to(DEVICE, dtype)
    x = torch.randn(6, 320)
    with torch.no_grad():
        outputs = [device(x.to(DEVICE, dtype)).cpu() for _ in range(RUNS)]
    torch.testing.assert_close(outputs[0].float(), host(x), rtol=0.03, atol=0.03)
    assert all(torch.equal(outputs[0], y) for y in outputs)
