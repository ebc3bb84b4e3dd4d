"""Builds an operator in C++ (cpp/softshrink.cpp) and compares it with torch's, forwards and backwards."""

import pathlib

import torch

import headrace

source = pathlib.Path(__file__).parent / "cpp" / "softshrink.cpp"
headrace.cpp_extension.load("headrace_example", [str(source)], is_python_module=False)
softshrink = torch.ops.headrace_example.softshrink

x = torch.linspace(-2, 2, 1 << 16, device="headrace", requires_grad=True)
torch.headrace.reset_stats()
y = softshrink(x * 2, 0.5).add(1)
y.square().sum().backward()
gradient = x.grad.cpu()
stats = torch.headrace.stats()
print(f"{stats['operations']} operations, {stats['commits']} commit")

z = x.detach().cpu().requires_grad_()
torch.nn.functional.softshrink(z * 2, 0.5).add(1).square().sum().backward()
print("equal:", torch.equal(y.detach().cpu(), torch.nn.functional.softshrink(z * 2, 0.5) + 1), torch.equal(gradient, z.grad))
