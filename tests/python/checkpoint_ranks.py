"""The ranks of test_distributed.py that train with checkpoints: `python checkpoint_ranks.py TEST`, as in
distributed_ranks.py. CHECKPOINT is the folder. A sharded training (FSDP2) that is resumed from
torch.distributed.checkpoint goes on as the unbroken one: the model, the optimizer, its schedule and random numbers."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

RANK, SIZE, DEVICE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "headrace"
FOLDER = Path(os.environ["CHECKPOINT"])
STEPS = 6  # half of them before the checkpoint
ROWS = 8
KINDS = (("plain", 0.0, None), ("dropout", 0.5, None), ("bfloat16", 0.0, torch.bfloat16))  # name, dropout, dtype of the layers


class Training:
    """Sharded over all ranks. `dropout` draws other numbers on each rank."""

    def __init__(self, seed, dropout, dtype=None):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(7, 13), nn.Dropout(dropout), nn.LayerNorm(13), nn.GELU(), nn.Linear(13, 5, bias=False)
        ).to(DEVICE)
        policy = MixedPrecisionPolicy(param_dtype=dtype) if dtype else MixedPrecisionPolicy()
        for layer in (self.model[0], self.model[4]):
            fully_shard(layer, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05, weight_decay=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        self.steps = 0
        torch.manual_seed(seed + 1 + RANK)

    def run(self, steps):
        for _ in range(steps):
            rows = torch.arange(ROWS * 7).reshape(ROWS, 7).add(100 * self.steps).sin()
            # the ranks' gradients are averaged: each rank has as many rows
            self.model(rows.chunk(SIZE)[RANK].to(DEVICE)).square().mean().backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
            self.steps += 1

    def state_dict(self):
        model, optimizer = states.get_state_dict(self.model, self.optimizer)
        random = {"device": torch.headrace.get_rng_state(), "host": torch.get_rng_state()}
        return {
            "model": model,
            "optimizer": optimizer,
            "schedule": self.schedule.state_dict(),
            "steps": torch.tensor(self.steps),
            f"random of rank {RANK}": random,
        }

    def load_state_dict(self, state):
        states.set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.schedule.load_state_dict(state["schedule"])
        self.steps = int(state["steps"])
        if random := state.get(f"random of rank {RANK}"):
            torch.headrace.set_rng_state(random["device"])
            torch.set_rng_state(random["host"])

    def whole(self):
        """Everything that training has changed, as tensors of the host without shards."""
        options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
        model, optimizer = states.get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optimizer": optimizer.get("state"), "rate": self.schedule.get_last_lr()}


def save():
    """Unbroken trainings, with a checkpoint in their middle; the ends are in files."""
    dist.init_process_group()
    for name, dropout, dtype in KINDS:
        training = Training(3, dropout, dtype)
        training.run(STEPS // 2)
        writing = None
        if dropout:
            writing = dcp.async_save(training.state_dict(), checkpoint_id=FOLDER / name)
        else:
            dcp.save(training.state_dict(), checkpoint_id=FOLDER / name)
        training.run(STEPS // 2)
        if writing:
            writing.result()
        write(training, name)
    resume_all()
    dist.destroy_process_group()


def write(training, name):
    whole = training.whole()  # all ranks gather; rank 0 has the tensors
    if RANK == 0:
        torch.save(whole, FOLDER / f"{name}.pt")


def resume():
    dist.init_process_group()
    resume_all()
    dist.destroy_process_group()


def resume_all():
    """With as many ranks the same bits; with others the same numbers but for the order of sums."""
    for name, dropout, dtype in KINDS:
        if dropout and SIZE != 2:
            continue  # other ranks draw other numbers
        training = Training(11, dropout, dtype)
        training.run(1)
        state = training.state_dict()
        if SIZE != 2:
            del state[f"random of rank {RANK}"]
        dcp.load(state, checkpoint_id=FOLDER / name)
        training.load_state_dict(state)
        training.run(STEPS // 2)
        whole = training.whole()
        if RANK == 0:
            bound = 0 if SIZE == 2 else 2e-2 if dtype else 1e-5
            torch.testing.assert_close(whole, torch.load(FOLDER / f"{name}.pt"), rtol=bound, atol=bound)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
