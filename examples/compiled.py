"""torch.compile(backend="headrace"): the graph is captured once; running it skips most of Python's cost."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)).to("headrace")
x = torch.rand(8, 64).to("headrace")
compiled = torch.compile(model, backend="headrace")

torch.headrace.reset_stats()
for _ in range(3):
    y = compiled(x) * 2  # the product by 2 is eager, and still part of the same program
print("largest difference:", (y - model(x) * 2).abs().max().item())
stats = torch.headrace.stats()
print(f"{stats['graph_captures']} graph captured, {stats['graph_runs']} runs, {stats['commits']} commit")
