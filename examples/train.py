"""A training loop: only the device differs from torch's own. Forward, backward and Adam are one program."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to("headrace")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.rand(256, 2).to("headrace") * 2 - 1
y = (x[:, :1] * x[:, 1:]).sign()  # the sign of a product: not linear

for step in range(301):
    optimizer.zero_grad()
    loss = nn.functional.soft_margin_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:3}: loss {loss.item():.3f}")  # item() waits; between these steps nothing does
print(f"accuracy {(model(x).sign() == y).float().mean().item():.2f}")
