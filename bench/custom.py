#!/usr/bin/env python3
"""Times an element-wise kernel of an expression against the operator that torch has, and against plain torch code.

Softshrink, four times: torch.headrace.elementwise, torch's own operator, torch.where, and a kernel in C, which does not
fuse. Each call on 64 floats is timed without its run (results are dropped), then with its gradient; 1M floats are timed
with their run, between two operations before and two after it. Groups are kernels and library calls of that chain. The
ways take turns, and the smallest time of all rounds counts.

    python bench/custom.py
"""

import argparse
import time

import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
import torch


def plain(x, l):
    return torch.where(x > l, x - l, torch.where(x < -l, x + l, 0.0))


SOURCE = """
kernel void softshrink(in float *x, out float *y, float l) {
  y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);
}
kernel void backward(in float *x, in float *gy, out float *gx, float l) {
  gx[i] = x[i] > l || x[i] < -l ? gy[i] : 0;
}"""


class InC(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, l, library):
        ctx.save_for_backward(x)
        ctx.l, ctx.library = l, library
        y = torch.empty_like(x)
        library.softshrink(x, y, l)
        return y

    @staticmethod
    def backward(ctx, gy):
        (x,) = ctx.saved_tensors
        gx = torch.empty_like(x)
        ctx.library.backward(x, gy, gx, ctx.l)
        return gx, None, None


def ways():
    library = torch.headrace.compile_kernel(SOURCE)
    text = "y = x > l ? x - l : (x < -l ? x + l : 0)"
    return {
        "elementwise": torch.headrace.elementwise(text, "float x, float l -> float y"),
        "built-in softshrink": torch._C._nn.softshrink,
        "plain torch code": plain,
        "kernel in C": lambda x, l: InC.apply(x, l, library),
    }


def chain(softshrink, x):
    return (softshrink((x * 2).sigmoid(), 0.5) * 3) + 1


def seconds(call, count):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    taken = time.perf_counter() - begin
    torch.headrace.synchronize()
    return taken / count


def run_chain(softshrink, x):
    held = chain(softshrink, x)
    torch.headrace.synchronize()
    return held


def train(softshrink, x):
    softshrink(x, 0.5).backward(x.detach())
    x.grad = None


def count_groups(softshrink, x):
    for _ in range(3):
        run_chain(softshrink, x)
    torch.headrace.reset_stats()
    run_chain(softshrink, x)
    stats = torch.headrace.stats()
    return stats["kernels"] + stats["library_calls"], stats["commits"], stats["operations"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how often the ways take turns (default %(default)s)")
    arguments = parser.parse_args()
    x, large = torch.randn(64, device="headrace"), torch.randn(1 << 20, device="headrace")
    leaf = torch.randn(64, device="headrace", requires_grad=True)
    made, best = ways(), {}
    for _ in range(arguments.rounds):
        for name, call in made.items():
            measured = (
                seconds(lambda call=call: call(x, 0.5), 1000),
                seconds(lambda call=call: train(call, leaf), 100),
                seconds(lambda call=call: run_chain(call, large), 5),
            )
            best[name] = tuple(map(min, measured, best.get(name, measured)))
    print("| us | call, 64 floats | with gradient | chain, 1M floats | groups | commits | operations |")
    print("|---|---|---|---|---|---|---|")
    for name, call in made.items():
        times = " | ".join(f"{value * 1e6:.2f}" for value in best[name])
        print(f"| {name} | {times} | {' | '.join(map(str, count_groups(call, large)))} |")


if __name__ == "__main__":
    main()
