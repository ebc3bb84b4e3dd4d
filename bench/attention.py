"""Fused attention on a GPU: F.scaled_dot_product_attention, forward and backward, on Headrace's device or on torch's
CUDA device.

    HEADRACE_DEVICE=cuda python bench/attention.py headrace     python bench/attention.py cuda

One process measures one device and prints one line a case: milliseconds forward and forward with backward (median of
several batches of calls), TFLOP/s, and the largest error of the output and of each gradient against float64 on the
CPU, of the first of the heads, as a share of the largest value.
"""

import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F

CASES = [  # batch, heads, tokens, width, causal, dtype, dropout
    (8, 12, 1024, 64, True, torch.float32, 0.0),
    (8, 12, 1024, 64, True, torch.float32, 0.1),
    (8, 12, 1024, 64, True, torch.bfloat16, 0.0),
    (8, 12, 1024, 64, True, torch.bfloat16, 0.1),
    (8, 12, 1024, 64, False, torch.bfloat16, 0.0),
    (4, 16, 2048, 128, True, torch.bfloat16, 0.0),
    (4, 16, 2048, 128, True, torch.float32, 0.0),
    (1, 12, 1024, 64, True, torch.float32, 0.0),
    (1, 12, 128, 64, True, torch.float32, 0.0),
    (2, 3, 333, 40, True, torch.float16, 0.0),
    (2, 3, 333, 40, False, torch.float32, 0.0),
]


def make(case, device):
    """q, k, v in the layout of a network's projection: views of one [batch, tokens, 3 * heads * width]; and the
    gradient."""
    batch, heads, tokens, width, _, dtype, _ = case
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, tokens, 3 * heads * width, generator=generator).to(dtype)
    dy = torch.randn(batch, tokens, heads, width, generator=generator).to(dtype)
    return x.to(device).requires_grad_(), dy.to(device)


def attend(case, x, dropout=None):
    batch, heads, tokens, width, causal, _, p = case
    q, k, v = (t.view(batch, tokens, heads, width).transpose(1, 2) for t in x.split(heads * width, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=p if dropout is None else dropout)
    return y.transpose(1, 2)


def errors(case, x, dy):
    """Of y, dq, dk, dv of the first batch's first head."""
    batch, heads, tokens, width = case[:4]
    y = attend(case, x, 0.0)
    (dx,) = torch.autograd.grad(y, x, dy)
    host = x.detach().cpu().double()[:1].view(1, tokens, 3, heads, width)[:, :, :, :1].reshape(1, tokens, 3 * width)
    host.requires_grad_()
    one = (1, 1, tokens, width) + case[4:]
    want = attend(one, host, 0.0)
    (dwant,) = torch.autograd.grad(want, host, dy.cpu().double()[:1, :, :1])
    got = dx.cpu().double()[:1].view(1, tokens, 3, heads, width)[:, :, :, 0].transpose(1, 2)
    pairs = [(y.cpu().double()[:1, :, :1], want)]
    pairs += list(zip(got[0], dwant.view(1, tokens, 3, width).transpose(1, 2)[0]))
    return ["%.1e" % ((a - b).abs().max() / b.abs().max()).item() for a, b in pairs]


def measure(step, synchronize, calls):
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        kept = [step() for _ in range(calls)]  # unreferenced results are not computed
        synchronize()
        times.append((time.perf_counter() - begin) / calls)
        del kept
    return statistics.median(times[2:]) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=("headrace", "cuda", "cpu"))
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--cases", default="", help="numbers with commas between; all of them")
    parser.add_argument("--quick", action="store_true", help="no errors")
    arguments = parser.parse_args()
    if arguments.device == "headrace":
        import headrace.torch  # noqa: F401
    module = getattr(torch, arguments.device)
    synchronize = getattr(module, "synchronize", lambda: None)
    for case in [CASES[int(number)] for number in arguments.cases.split(",")] if arguments.cases else CASES:
        batch, heads, tokens, width, causal, dtype, p = case
        x, dy = make(case, arguments.device)

        def forward():
            with torch.no_grad():
                return attend(case, x)

        def both():
            return torch.autograd.grad(attend(case, x), x, dy)

        ms = [measure(step, synchronize, arguments.calls) for step in (forward, both)]
        flops = 4 * batch * heads * tokens * tokens * width * (0.5 if causal else 1)
        rates = (flops / ms[0] * 1e-9, 3.5 * flops / ms[1] * 1e-9)
        options = f"{' causal' if causal else ''}{f' dropout {p}' if p else ''}"
        name = f"{batch}x{heads}x{tokens}x{width} {str(dtype)[6:]}{options}"
        print(
            f"{name:44} forward {ms[0]:8.3f} ms {rates[0]:6.1f} TFLOP/s   both {ms[1]:8.3f} ms {rates[1]:6.1f} "
            "TFLOP/s   "
            f"{'' if arguments.quick else 'errors ' + ' '.join(errors(case, x, dy))}",
            flush=True,
        )
    assert math.isfinite(ms[0])


if __name__ == "__main__":
    main()
