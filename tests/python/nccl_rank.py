"""A rank of a group that communicates by NCCL, or one rank alone on the stub of it (tests/stubs/nccl.c). With a GPU for
each rank: HEADRACE_DEVICE=cuda torchrun --nproc-per-node 2 tests/python/nccl_rank.py"""

import copy
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import headrace.torch  # noqa: F401 (a torch with CUDA does not load the device by itself)

RANK, SIZE, DEVICE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "headrace"
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)


def values_of(rank, dtype):
    return (torch.arange(6) + 10 * rank).to(dtype)


def check(tensor, expected):
    assert torch.equal(tensor.cpu(), expected), f"rank {RANK}: {tensor.cpu()} instead of {expected}"


def check_collectives(dtype):
    own = values_of(RANK, dtype).to(DEVICE)
    parts = [values_of(rank, dtype) for rank in range(SIZE)]
    total = torch.stack(parts).sum(0)
    x = own.clone()
    dist.all_reduce(x, async_op=True).wait()
    check(x, total)
    x = own.clone()
    dist.broadcast(x, SIZE - 1)
    check(x, parts[-1])
    gathered = torch.empty(6 * SIZE, dtype=dtype, device=DEVICE)
    dist.all_gather_into_tensor(gathered, own)
    check(gathered, torch.cat(parts))
    dist.reduce_scatter_tensor(x, gathered)
    check(x, parts[RANK] * SIZE)
    dist.all_to_all_single(gathered, torch.cat([own] * SIZE))
    check(gathered, torch.cat(parts))
    x = own.clone()
    dist.reduce(x, 0)
    if RANK == 0:
        check(x, total)


def check_messages():
    to, origin = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    x, y = torch.full((5,), float(RANK), device=DEVICE), torch.empty(5, device=DEVICE)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, y, origin)])
    for work in works:
        work.wait()
    check(y, torch.full((5,), float(origin)))


def check_refusals():
    for op, dtype in ((dist.ReduceOp.BXOR, torch.int32), (dist.ReduceOp.SUM, torch.int16)):
        try:
            dist.all_reduce(torch.ones(2, dtype=dtype, device=DEVICE), op=op)
        except RuntimeError as error:
            assert "NCCL has no" in str(error), error
        else:
            raise AssertionError(f"no error for {op} of {dtype}")


def train(model, rank, size):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    for _ in range(3):
        model(torch.randn(4 * SIZE, 8).chunk(size)[rank].to(DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [getattr(parameter, "full_tensor", parameter.clone)().cpu() for parameter in model.parameters()]


def check_trainings():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(DEVICE)
    alone = train(copy.deepcopy(model), 0, 1)
    for parallel in (torch.nn.parallel.DistributedDataParallel, fully_shard):
        torch.testing.assert_close(train(parallel(copy.deepcopy(model)), RANK, SIZE), alone)


def main():
    dist.init_process_group()
    assert torch.headrace.distributed.transport() == os.environ.get("EXPECTED_TRANSPORT", "nccl")
    for dtype in DTYPES:
        check_collectives(dtype)
    if torch.headrace.distributed.transport() == "nccl":
        check_refusals()
    if SIZE > 1:
        check_messages()
    check_trainings()
    dist.barrier()
    group = dist.new_group([0])
    if RANK == 0:
        x = torch.ones(3, device=DEVICE)
        dist.all_reduce(x, group=group)
        check(x, torch.ones(3))
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {RANK} of {SIZE}: everything is right")


if __name__ == "__main__":
    main()
