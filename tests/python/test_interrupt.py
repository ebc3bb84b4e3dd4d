"""Ctrl-C ends a wait between two steps of a program: the interrupted work fails, older tensors are intact, the device
continues."""

import os
import signal
import threading
import time

import pytest
import torch
from support import DEVICE, synchronize

pytestmark = pytest.mark.skipif(DEVICE.type != "headrace", reason="of the device's waits")
SIZE, PRODUCTS = 1024, 60


def long_work(x, products=PRODUCTS):
    """Integer products: some tenths of a second each."""
    for _ in range(products):
        x = (x @ x) % 7
    return x


@pytest.fixture
def numbers():
    torch.manual_seed(0)
    x = torch.randint(0, 5, (SIZE, SIZE), device=DEVICE)
    synchronize()
    return x


def interrupt_soon(seconds=0.3, number=signal.SIGINT):
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def time_of_one(x):
    x = x.clone()
    synchronize()
    begin = time.perf_counter()
    long_work(x, 1).sum().item()
    return time.perf_counter() - begin


WAITS = {
    "synchronize": lambda y: torch.headrace.synchronize(),
    "item": lambda y: y.sum().item(),
    "cpu": lambda y: y.cpu(),
    "bool": lambda y: bool(y[0, 0] == 3),
    "tolist": lambda y: y[0].tolist(),
}


@pytest.mark.cpu_only  # a GPU ends what is in its queue
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_is_interrupted(numbers, wait):
    before = numbers.cpu()
    one = time_of_one(numbers)
    y = long_work(numbers)
    interrupt_soon()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        WAITS[wait](y)
    took = time.perf_counter() - begin
    assert took < 0.3 + 0.05 + 0.5 * PRODUCTS * one  # far from its end
    with pytest.raises(RuntimeError, match="interrupted"):
        y.cpu()
    assert torch.equal(numbers.cpu(), before)
    assert torch.equal((numbers + 1).cpu(), before + 1)  # the device goes on
    assert torch.equal(long_work(numbers[:64, :64].contiguous(), 2).cpu(), long_work(before[:64, :64].contiguous(), 2))


def test_in_strict_mode(numbers):
    torch.headrace.set_mode("strict")
    try:
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            long_work(numbers)
    finally:
        torch.headrace.set_mode("fuse")
    assert numbers.sum().item() > 0


def test_whatever_a_handler_raises_goes_on_from_the_wait(numbers):
    class Late(Exception):
        pass

    def be_late(number, frame):
        raise Late

    before = signal.signal(signal.SIGUSR1, be_late)
    try:
        for wait in (torch.headrace.synchronize, lambda: y.cpu()):
            y = long_work(numbers)
            interrupt_soon(number=signal.SIGUSR1)
            with pytest.raises(Late):
                wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert numbers.sum().item() > 0


def test_a_handler_that_returns_ends_nothing(numbers):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        y = long_work(numbers, 4)
        want = long_work(numbers.cpu(), 4)
        interrupt_soon(0.05, signal.SIGUSR1)
        assert torch.equal(y.cpu(), want)
        time.sleep(0.1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


def test_a_backward_pass_is_interrupted():
    x = torch.randn(SIZE, SIZE, device=DEVICE, dtype=torch.float64, requires_grad=True)
    synchronize()
    y = x
    for _ in range(PRODUCTS):
        y = y @ x * 1e-2
    y.sum().backward()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        x.grad.cpu()
    assert x.detach().isfinite().all().item()
    with pytest.raises(RuntimeError, match="interrupted"):
        x.grad.cpu()
