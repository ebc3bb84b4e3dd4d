"""Training by several processes: torchrun --nproc-per-node 2 examples/ddp.py. Torch finds the device's backend."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group()  # on this machine: through shared memory
rank, size = dist.get_rank(), dist.get_world_size()
torch.headrace.set_device(rank % torch.headrace.device_count())
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to("headrace"), gradient_as_bucket_view=True
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = (torch.rand(512, 2) * 2 - 1).chunk(size)[rank].to("headrace")  # each rank has its part of the data
y = (x[:, :1] * x[:, 1:]).sign()

for step in range(301):
    optimizer.zero_grad()
    loss = nn.functional.soft_margin_loss(model(x), y)
    loss.backward()  # gradients are averaged over the ranks
    optimizer.step()
right = (model(x).detach().sign() == y).sum()
dist.all_reduce(right)
if rank == 0:
    print(f"{size} ranks, accuracy {right.item() / 512:.2f}")
dist.destroy_process_group()
