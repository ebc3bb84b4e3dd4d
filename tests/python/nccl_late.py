"""Two ranks, of which the second misses a collective: the first gets an error in time. A GPU for each rank.

for rank in 0 1; do HEADRACE_DEVICE=cuda MASTER_ADDR=localhost MASTER_PORT=29511 WORLD_SIZE=2 RANK=$rank LOCAL_RANK=$rank \\
    python tests/python/nccl_late.py absent & done; wait

How: "absent" calls nothing, "late" after two collectives, "differs" calls another collective, "dead" ends.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401 (a torch with CUDA does not load the device by itself)

RANK, DEVICE, SECONDS = int(os.environ["RANK"]), "headrace", 3


def miss(how):
    x = torch.ones(1000, device=DEVICE)
    if how == "dead":
        os._exit(0)
    if how == "differs":
        try:
            dist.broadcast(x, 1)
            dist.all_gather_into_tensor(torch.empty(2000, device=DEVICE), x)
            torch.headrace.synchronize()
        except RuntimeError:
            pass
    time.sleep(3 * SECONDS)
    os._exit(0)  # the group can't be taken down together


def main(how):
    dist.init_process_group(timeout=datetime.timedelta(seconds=SECONDS))
    assert torch.headrace.distributed.transport() == "nccl"
    x = torch.ones(1000, device=DEVICE)
    for _ in range(0 if how == "absent" else 2):
        dist.all_reduce(x)
    torch.headrace.synchronize()
    if RANK == 1:
        miss(how)
    begin = time.monotonic()
    try:
        dist.all_reduce(x)
        y = (x + 1).cpu()
    except RuntimeError as error:
        seconds = time.monotonic() - begin
        assert seconds < 2 * SECONDS, seconds
        print(f"{how}: after {seconds:.1f} s: {error}".splitlines()[0])
    else:
        raise AssertionError(f"no error, but {y[:3]}")
    assert torch.ones(3, device=DEVICE).sum().item() == 3  # the device goes on
    try:
        dist.all_reduce(x)
        torch.headrace.synchronize()
    except RuntimeError as error:
        print(f"{how}: and then: {error}".splitlines()[0])
    else:
        raise AssertionError("the group goes on")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
