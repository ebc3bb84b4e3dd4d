"""Softshrink as plain torch code, as an element-wise kernel, and as a kernel in C: the same results."""

import torch

fused = torch.headrace.elementwise("y = x > l ? x - l : (x < -l ? x + l : 0)", "float x, float l -> float y")
library = torch.headrace.compile_kernel("""
    kernel void softshrink(in float *x, out float *y, float l) {
      y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);
    }""")


def plain(x, l):
    return torch.where(x > l, x - l, torch.where(x < -l, x + l, 0.0))


def in_c(x, l):
    y = torch.empty_like(x)
    library.softshrink(x, y, l)
    return y


x, results = torch.linspace(-2, 2, 1 << 16, device="headrace"), []
for name, softshrink in (("plain", plain), ("kernel", fused), ("in C", in_c)):
    torch.headrace.reset_stats()
    results.append(softshrink(x * 2, 0.5).add(1).cpu())
    stats = torch.headrace.stats()
    groups = stats["kernels"] + stats["library_calls"]
    print(f"{name:6} {stats['operations']} operations, groups: {groups}, commits: {stats['commits']}")
print("equal:", all(torch.equal(results[0], result) for result in results))
