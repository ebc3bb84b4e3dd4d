"""Softshrink as plain torch code, and as an element-wise kernel: the same results, of one operator."""

import torch

kernel = torch.headrace.elementwise("y = x > l ? x - l : (x < -l ? x + l : 0)", "float x, float l -> float y")


def plain(x, l):
    return torch.where(x > l, x - l, torch.where(x < -l, x + l, 0.0))


x = torch.linspace(-2, 2, 1 << 16, device="headrace")
results = []
for name, softshrink in (("plain", plain), ("kernel", kernel)):
    torch.headrace.reset_stats()
    results.append(softshrink(x * 2, 0.5).add(1).cpu())
    stats = torch.headrace.stats()
    groups = stats["kernels"] + stats["library_calls"]
    print(f"{name:6} {stats['operations']} operations, groups: {groups}, commits: {stats['commits']}")
print("equal:", torch.equal(*results))
