"""Contractions with their epilogues: convolutions and products in inference against torch's CPU device, while
statistics, weights and modes change between calls."""

import copy

import pytest
import torch
import torch.nn.functional as F
from support import assert_same
from torch import nn


class Block(nn.Module):
    """Convolution, batch norm, ReLU, convolution, batch norm, residual, ReLU."""

    def __init__(self, channels=16, inplace=True):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


def pair(device, **options):
    torch.manual_seed(3)
    cpu = Block(**options)
    for bn in (cpu.bn1, cpu.bn2):
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.5, 2)
        nn.init.normal_(bn.weight)
        nn.init.normal_(bn.bias)
    return cpu, copy.deepcopy(cpu).to(device)


def check(cpu, other, device, x):
    with torch.no_grad():
        assert_same(other(x.to(device)).cpu(), cpu(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_inference_block(device, inplace, layout):
    cpu, other = pair(device, inplace=inplace)
    x = torch.randn(2, 16, 9, 9).contiguous(memory_format=layout)
    cpu.eval(), other.eval()
    for _ in range(3):
        check(cpu, other, device, x)


def test_statistics_and_weights_change_between_calls(device):
    cpu, other = pair(device)
    x = torch.randn(2, 16, 9, 9)
    cpu.eval(), other.eval()
    for step in range(4):
        check(cpu, other, device, x)
        check(cpu, other, device, x)
        with torch.no_grad():
            for model in (cpu, other):
                model.bn1.running_mean.add_(0.5 + step)
                model.bn2.running_var.mul_(1.5)
                model.conv1.weight.mul_(0.75)
                model.conv2.bias.sub_(0.25)
                model.bn2.weight[3] = -2.0


def test_training_and_inference_in_turn(device):
    cpu, other = pair(device, inplace=False)
    x = torch.randn(4, 16, 7, 7)
    for _ in range(3):
        for model, where in ((cpu, "cpu"), (other, device)):
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            optimizer.zero_grad()
            model(x.to(where)).square().mean().backward()
            optimizer.step()
        cpu.eval(), other.eval()
        check(cpu, other, device, x)


def test_nan_survives_relu(device):
    conv = nn.Conv2d(16, 32, 1)
    x = torch.randn(1, 16, 6, 6)
    x[0, 2, 3, 4] = float("nan")
    with torch.no_grad():
        y = F.relu(copy.deepcopy(conv).to(device)(x.to(device))).cpu()
        linear = nn.Linear(16, 40)
        z = F.relu(copy.deepcopy(linear).to(device)(x[0, :, :, 4].t().to(device))).cpu()
    assert y.isnan().sum() == 32 and y[0, :, 3, 4].isnan().all()
    assert z.isnan().sum() == 40 and z[3].isnan().all()
    assert not torch.signbit(y[~y.isnan()]).any()


@pytest.mark.parametrize("slope", [0.1, 0.3])
def test_slopes_are_arguments(device, slope):
    conv, x = nn.Conv2d(8, 16, 3), torch.randn(2, 8, 7, 7)
    with torch.no_grad():
        expected = F.leaky_relu(conv(x), slope) * (slope + 1)
        actual = F.leaky_relu(copy.deepcopy(conv).to(device)(x.to(device)), slope) * (slope + 1)
    assert_same(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_results_do_not_depend_on_what_is_matched(device):
    """Reading between two operations keeps them apart; the bits are the same."""
    torch.manual_seed(1)
    conv, linear = nn.Conv2d(16, 32, 3).to(device), nn.Linear(24, 48).to(device)
    x, z, scale = torch.randn(2, 16, 8, 8).to(device), torch.randn(33, 24).to(device), torch.randn(32, 1, 1).to(device)
    residual = torch.randn(33, 48).to(device)

    def run(look):
        results = []
        with torch.no_grad():
            y = look(conv(x))
            y = look(y * scale)
            y = look(y + scale)
            results.append(F.relu(y))
            results.append(look(linear(z)).add(residual).relu())
            results.append(F.leaky_relu(look(linear(z)), 0.2))
        return [r.cpu() for r in results]

    def look(y):
        y.sum().item()
        return y

    for apart, together in zip(run(look), run(lambda y: y)):
        assert torch.equal(apart, together)
