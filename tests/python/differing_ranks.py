"""Two ranks whose collectives differ, of test_distributed.py: `python differing_ranks.py TEST`. With the transport nccl
on the stub of it (tests/stubs/nccl.c) no data moves, and calls end at once: what counts is which are compared."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401 (a torch with CUDA does not load the device by itself)

RANK, SIZE, DEVICE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "headrace"
FEW, MANY = 4, 8  # elements
OTHER = 1 - RANK
GROUP = HOST = None  # what is tested, and how the ranks report
NCCL = os.environ["EXPECTED_TRANSPORT"] == "nccl"


def numbers(count=FEW, dtype=torch.float32):
    return torch.ones(count, dtype=dtype, device=DEVICE)


def own(few, many):
    """The ranks' arguments: the first rank has the one, the second the other."""
    return (few, many)[RANK]


def reduce_sizes():
    dist.all_reduce(numbers(own(FEW, MANY)), group=GROUP)


def reduce_dtypes():
    dist.all_reduce(numbers(dtype=own(torch.float32, torch.int32)), group=GROUP)


def reduce_operations():
    dist.all_reduce(numbers(), op=own(dist.ReduceOp.SUM, dist.ReduceOp.MAX), group=GROUP)


def reduce_roots():
    dist.reduce(numbers(), own(0, 1), group=GROUP)


def scatter_sums():
    count = own(FEW, MANY)
    dist.reduce_scatter_tensor(numbers(count), numbers(count * SIZE), group=GROUP)


def scatter_lists_of_sums():
    count = own(FEW, MANY)
    dist.reduce_scatter(numbers(count), [numbers(count)] * SIZE, group=GROUP)


def broadcasts():
    dist.broadcast(numbers(own(FEW, MANY)), 0, group=GROUP)


def gathers_of_all():
    count = own(FEW, MANY)
    dist.all_gather_into_tensor(numbers(count * SIZE), numbers(count), group=GROUP)


def lists_of_all():
    count = own(FEW, MANY)
    dist.all_gather([numbers(count) for _ in range(SIZE)], numbers(count), group=GROUP)


def scatters():
    count = own(FEW, MANY)
    dist.scatter(numbers(count), [numbers(count)] * SIZE if RANK == 0 else None, src=0, group=GROUP)


def other_collectives():
    dist.all_reduce(numbers(), group=GROUP) if RANK == 0 else dist.broadcast(numbers(), 0, group=GROUP)


def coalesced():
    with dist._coalescing_manager(GROUP, device=torch.device(DEVICE)):
        dist.all_reduce(numbers(FEW), group=GROUP)
        dist.all_reduce(numbers(own(FEW, MANY)), group=GROUP)


def barrier_or_not():
    dist.barrier(group=GROUP) if RANK == 0 else dist.all_reduce(numbers(MANY), group=GROUP)


def gathers():
    count = own(FEW, MANY)
    dist.gather(numbers(count), [numbers(count) for _ in range(SIZE)] if RANK == 0 else None, dst=0, group=GROUP)


def all_to_all():
    count = own(FEW, MANY)
    dist.all_to_all_single(numbers(count * SIZE), numbers(count * SIZE), group=GROUP)


def all_to_all_lists():
    count = own(FEW, MANY)
    dist.all_to_all([numbers(count) for _ in range(SIZE)], [numbers(count) for _ in range(SIZE)], group=GROUP)


def send_or_receive(count, dtype=torch.float32):
    dist.send(numbers(count, dtype), OTHER, group=GROUP) if RANK == 0 else dist.recv(numbers(count, dtype), OTHER, group=GROUP)


def messages():
    send_or_receive(own(FEW, MANY))


def dtypes_of_messages():
    send_or_receive(FEW, own(torch.float32, torch.int32))


def batches():
    count = own(FEW, MANY)
    operations = [dist.P2POp(dist.isend, numbers(FEW), OTHER, group=GROUP), dist.P2POp(dist.irecv, numbers(count), OTHER, group=GROUP)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def refused_operation():
    dist.all_reduce(numbers(), op=own(dist.ReduceOp.SUM, dist.ReduceOp.BAND), group=GROUP)


def refused_sizes():
    dist.all_gather_into_tensor(numbers(FEW * SIZE + own(0, 1)), numbers(), group=GROUP)


def refused_dtypes():
    dist.all_gather_into_tensor(numbers(FEW * SIZE, own(torch.float32, torch.int32)), numbers(), group=GROUP)


def refused_lists():
    dist.all_gather([numbers() for _ in range(SIZE + own(0, 1))], numbers(), group=GROUP)


def refused_root():
    dist.broadcast(numbers(), own(0, SIZE))  # of the default group: torch itself compares no root


def refused_splits():
    rows = numbers(FEW * SIZE)
    splits = own([FEW] * SIZE, [FEW] * (SIZE + 1))
    dist.all_to_all_single(numbers(FEW * SIZE), rows, [FEW] * SIZE, splits, group=GROUP)


def refused_sums():
    dist.reduce_scatter_tensor(numbers(), numbers(FEW * SIZE + own(0, 1)), group=GROUP)


def refused_in_a_block():
    with dist._coalescing_manager(GROUP, device=torch.device(DEVICE)):
        dist.all_gather_into_tensor(numbers(FEW * SIZE), numbers(), group=GROUP)
        dist.all_gather_into_tensor(numbers(FEW * SIZE + own(0, 1)), numbers(), group=GROUP)


def left_block():
    with dist._coalescing_manager(GROUP, device=torch.device(DEVICE)):
        dist.all_reduce(numbers(), group=GROUP)
        dist.all_reduce(numbers(), group=GROUP)
        if RANK == 1:
            raise ValueError("a block that the program leaves")


def refused_by_all():
    dist.all_gather_into_tensor(numbers(SIZE * FEW + 1), numbers(FEW + RANK), group=GROUP)


REFUSED = (
    refused_operation,
    refused_sizes,
    refused_dtypes,
    refused_lists,
    refused_root,
    refused_sums,
    refused_in_a_block,
    left_block,
)
COLLECTIVES = (
    barrier_or_not,  # first, while no rank has had a barrier
    reduce_sizes,
    reduce_dtypes,
    reduce_operations,
    reduce_roots,
    scatter_sums,
    scatter_lists_of_sums,
    broadcasts,
    gathers_of_all,
    lists_of_all,
    scatters,
    other_collectives,
    coalesced,
)
EXCHANGES = (gathers, all_to_all, all_to_all_lists)
MESSAGES = (messages, dtypes_of_messages, batches)


def error_of(run):
    try:
        run()
        torch.headrace.synchronize()
    except Exception as error:
        return str(error).splitlines()[0]
    return None


def agree():
    """Calls that are equal run, for the first time and again."""
    for _ in range(2):
        x = numbers(3)
        dist.all_reduce(x, group=GROUP)
        dist.broadcast(x, 1, group=GROUP)
        dist.all_gather_into_tensor(numbers(3 * SIZE), x, group=GROUP)
        dist.all_to_all_single(numbers(3 * SIZE), numbers(3 * SIZE), group=GROUP)
        dist.barrier(group=GROUP)
        torch.headrace.synchronize()


def same_error(run):
    start = time.monotonic()
    errors = [None] * SIZE
    dist.all_gather_object(errors, error_of(run), group=HOST)
    assert time.monotonic() - start < 20, f"{run.__name__}: {errors}"
    return errors


def begin():
    global GROUP, HOST
    dist.init_process_group("headrace", timeout=timedelta(seconds=30))
    GROUP, HOST = dist.new_group(), dist.new_group(backend="gloo")
    if "TORCH_DISTRIBUTED_DEBUG" not in os.environ:  # else torch's wrapper hides the backend
        assert torch.headrace.distributed.transport(GROUP) == os.environ["EXPECTED_TRANSPORT"]


def end():
    global GROUP, HOST
    GROUP = HOST = None  # a group that outlives destroy_process_group leaves gloo's threads to the interpreter's end
    dist.destroy_process_group()


def check(errors, *words):
    assert errors[0] and errors[0] == errors[1], errors
    for word in words:
        assert word in errors[0], errors


def differ():
    """Each kind of difference is the same error on both ranks, and the group goes on."""
    begin()
    for run in COLLECTIVES if NCCL else COLLECTIVES + EXCHANGES:
        check(same_error(run), "rank 0", "rank 1")
        agree()
    end()


def refuse():
    """A call that one rank refuses is an error of both: its own, and one that names the rank. The group goes on."""
    begin()
    for run in REFUSED if NCCL else (*REFUSED, refused_splits):  # with NCCL the first rank's call is known
        first, second = same_error(run)
        assert first is not None and "rank 1 runs" in first and "arguments that it refuses" in first, (run, first, second)
        assert second is not None and "rank 0" not in second, (run, first, second)
        agree()
        x = torch.arange(3.0, device=DEVICE) + RANK
        dist.all_reduce(x, group=GROUP)
        assert NCCL or x.tolist() == [1, 3, 5], (run, x)
    errors = same_error(refused_by_all)
    assert all("all_gather: a tensor of" in error for error in errors), errors
    agree()
    end()


def differ_in_detail():
    """torch's wrapper of backends compares every call, also those that are known."""
    begin()
    for run in (reduce_sizes, gathers_of_all):
        for error in same_error(run):
            assert "Detected mismatch between collectives on ranks" in error, error
        agree()
    end()


def differ_in_messages():
    """The receiver gets an error. In a group by NCCL both do, but the stub does not make the sender wait."""
    global GROUP
    begin()
    for run in MESSAGES + EXCHANGES if NCCL else MESSAGES:
        errors = same_error(run)
        error = errors[1] or errors[0]
        assert "rank 0" in error and "expect" in error, errors
        if NCCL:
            check(same_error(reduce_sizes), error)
            GROUP = dist.new_group()
        else:
            agree()
    end()


def differ_later():
    """A rank whose call is known does not wait for the other, whose call is new. Then the group is broken."""
    begin()
    agree()

    def run():
        dist.all_reduce(numbers(own(3, MANY)), group=GROUP)
        dist.all_reduce(numbers(5), group=GROUP)

    check(same_error(run), "rank 0 runs all_reduce of 3 elements of f32", "rank 1 runs all_reduce of 8 elements of f32")
    check(same_error(reduce_sizes), "rank 0 runs all_reduce of 3 elements of f32")
    end()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
