"""Timing: warm up, and wait for each result while it is referenced. A result that is dropped before is never
computed."""

import time

import torch


def seconds(function, wait, count=50):
    for _ in range(count):
        result = function()  # warm-up; kernels are compiled in the background
        wait()
    start = time.perf_counter()
    for _ in range(count):
        result = function()
        wait()
    del result
    return (time.perf_counter() - start) / count


for name, wait in (("cpu", lambda: None), ("headrace", torch.headrace.synchronize)):
    x = torch.rand(1_000_000).to(name)
    taken = seconds(lambda x=x: (x * 2 + 1).sqrt().sigmoid().sum(), wait)
    print(f"{name:8} {taken * 1e3:.3f} ms")
