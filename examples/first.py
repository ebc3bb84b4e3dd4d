"""Lazy and fused: three operations run as one kernel, and another number does not compile anything."""

import torch

x = torch.linspace(-2, 2, 5).to("headrace")
torch.headrace.reset_stats()
for factor in (1.0, 2.0):
    y = (x * factor + 1).relu()  # recorded, not run
    print(y)  # a value is needed: commit, fuse, run
stats = torch.headrace.stats()
print(f"{stats['operations']} operations ran as {stats['kernels']} kernels; {stats['compiles']} program was compiled")
