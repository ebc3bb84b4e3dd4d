#!/usr/bin/env python3
"""Times all-reduces by NCCL between GPUs: Headrace's device against torch's CUDA device, in processes of their own that
take turns. Milliseconds, the slower rank's; medians of the calls, each with its wait, and minima over the rounds.

    HEADRACE_DEVICE=cuda python bench/nccl.py --ranks 2
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = {"4 B": 1, "1 MB": 1 << 18, "16.8 MB": 4_200_000, "102 MB": 25_600_000}
CALLS = 50
DEVICES = ("headrace", "cuda")


def wait(device: str) -> None:
    import torch

    getattr(torch, device).synchronize()


def time_rank(device: str) -> None:
    import torch

    if device == "headrace":  # a torch that also drives CUDA does not find the device by itself
        import headrace.torch  # noqa: F401
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    getattr(torch, device).set_device(rank)
    options = {"backend": "nccl", "device_id": torch.device(device, rank)} if device == "cuda" else {"backend": device}
    dist.init_process_group(**options)
    found = {}
    for title, count in SIZES.items():
        x = torch.ones(count, device=device)
        times = []
        for _ in range(CALLS + 5):
            dist.barrier()
            wait(device)
            begin = time.perf_counter()
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            wait(device)
            times.append(time.perf_counter() - begin)
        assert x.eq(1).all().item()
        found[title] = statistics.median(times[5:]) * 1e3
    of_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, found)
    if rank == 0:
        print(json.dumps({title: max(times[title] for times in of_ranks) for title in SIZES}))
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def measure(device: str, ranks: int) -> dict:
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    common["MASTER_PORT"] = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank-of", device],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"nccl.py: a rank on {device} failed")
    return json.loads(outputs[0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="processes, each with a GPU (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns (default %(default)s)")
    parser.add_argument("--rank-of", choices=DEVICES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        time_rank(arguments.rank_of)
        return
    runs = [{device: measure(device, arguments.ranks) for device in DEVICES} for _ in range(arguments.rounds)]
    print("| all-reduce, float32 | headrace, ms | torch's CUDA, ms |\n|---|---:|---:|")
    for title in SIZES:
        print(f"| {title} |", " | ".join(f"{min(run[device][title] for run in runs):.3f}" for device in DEVICES), "|")


if __name__ == "__main__":
    main()
