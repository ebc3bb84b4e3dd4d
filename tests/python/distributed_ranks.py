"""The ranks of test_distributed.py: `python distributed_ranks.py TEST`, started twice by torchrun's variables. A rank
that finds something wrong exits with an error."""

import os
import pathlib
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

RANK, SIZE, DEVICE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "headrace"


def begin(backend="cpu:gloo,headrace:headrace", seconds=40):
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))


def equal(ours, theirs, what):
    assert torch.equal(ours.cpu(), theirs), f"rank {RANK}: {what}: {ours.cpu()} instead of {theirs}"


def raises(function, *words):
    """The error's message has the words; returns the seconds."""
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        for word in words:
            assert word in str(error), f"rank {RANK}: no {word!r} in {error}"
        return time.monotonic() - start
    raise AssertionError(f"rank {RANK}: no error")


# ---- collectives, beside gloo on the same numbers


def values(shape, dtype, seed=0):
    torch.manual_seed(100 * seed + RANK)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_complex:
        return torch.complex(torch.randint(-9, 9, shape).float(), torch.randint(-9, 9, shape).float()).to(dtype)
    return torch.randint(-9, 9, shape).to(dtype)


def known_to_gloo(tensor):
    """The same numbers in a dtype that all of gloo's collectives have."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.float() if tensor.dtype in (torch.bool, torch.bfloat16) else tensor


def both(run, shape, dtype, what):
    """`run(tensor)` on the device and with gloo: the same tensors come back."""
    x = values(shape, dtype)
    plain = known_to_gloo(x)
    for mine, its in zip(run(x.to(DEVICE)), run(plain), strict=True):
        equal(known_to_gloo(mine.cpu()), its, f"{what}, {shape} of {dtype}")


def run_reduce(op):
    def run(x):
        dist.all_reduce(x, op=op)
        return [x]

    return run


def run_reduce_one(x):
    dist.reduce(x, 1)
    return [x] if RANK == 1 else []


def run_broadcast(x):
    dist.broadcast(x, 1)
    return [x]


def run_gathers(x):
    lists = [torch.zeros_like(x) for _ in range(SIZE)]
    dist.all_gather(lists, x)
    whole = torch.zeros_like(torch.cat([x] * SIZE))
    dist.all_gather_into_tensor(whole, x)
    root = [torch.zeros_like(x) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(x, root, dst=1)
    return [*lists, whole, *(root or [])]


def run_scatters(x):
    out = torch.zeros_like(x)
    dist.scatter(out, [x, x.roll(1, 0)] if RANK == 0 else None, src=0)
    return [out]


def run_all_to_all(x):
    rows = x.shape[0]
    even, uneven = torch.zeros_like(x), torch.zeros_like(torch.cat([x, x])[: (rows // 4) * (2, 6)[RANK]])
    dist.all_to_all_single(even, x)
    dist.all_to_all_single(uneven, x, [rows // 4 * (1, 3)[RANK]] * SIZE, [rows // 4, rows // 4 * 3])
    return [even, uneven]


def run_messages(x):
    got, other = torch.zeros_like(x), 1 - RANK
    wait = dist.irecv(got, other)  # first, on both ranks
    dist.isend(x, other).wait()
    wait.wait()
    again = torch.zeros_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, again, other), dist.P2POp(dist.isend, got, other)]):
        work.wait()
    return [got, again]


def collectives():
    begin()
    from headrace import distributed

    assert distributed.transport() == os.environ["EXPECTED_TRANSPORT"], distributed.transport()
    ops = dist.ReduceOp
    for shape in ((0, 3), (4,), (8, 3), (4, 50000)):
        for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.uint8):
            both(run_broadcast, shape, dtype, "broadcast")
            both(run_gathers, shape, dtype, "gather")
            if shape != (0, 3):
                both(run_scatters, shape, dtype, "scatter")
            both(run_all_to_all, shape, dtype, "all_to_all")
            if shape != (0, 3):
                both(run_messages, shape, dtype, "messages")
            if dtype in (torch.float32, torch.int64, torch.complex64, torch.uint8):
                both(run_reduce(ops.SUM), shape, dtype, "sum")
                both(run_reduce_one, shape, dtype, "reduce")
        for dtype in (torch.float32, torch.int64):
            for op in (ops.MIN, ops.MAX, ops.PRODUCT):
                both(run_reduce(op), shape, dtype, str(op))
        for op in (ops.BAND, ops.BOR, ops.BXOR):
            both(run_reduce(op), shape, torch.int64, str(op))
    own_results()
    dist.barrier()
    dist.destroy_process_group()


def own_results():
    """What gloo lacks, or does in another way."""
    x = torch.full((3, 4), float(RANK), device=DEVICE)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    equal(x, torch.full((3, 4), 0.5), "average")
    for dtype, value in ((torch.float64, 3.0), (torch.float16, 60000.0), (torch.bfloat16, 3.0)):
        x = torch.full((5,), value, dtype=dtype, device=DEVICE)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        equal(x, torch.full((5,), value, dtype=dtype), f"average of {dtype}")
    whole = torch.arange(8.0, device=DEVICE).reshape(4, 2) * (RANK + 1)
    part = torch.empty(2, 2, device=DEVICE)
    dist.reduce_scatter_tensor(part, whole)
    equal(part, torch.arange(8.0).reshape(4, 2)[2 * RANK : 2 * RANK + 2] * 3, "reduce_scatter_tensor")
    dist.reduce_scatter(part, [whole[:2], whole[2:]])
    equal(part, torch.arange(8.0).reshape(4, 2)[2 * RANK : 2 * RANK + 2] * 3, "reduce_scatter")
    uneven = [torch.full((2 + 3 * r,), float(r + RANK), device=DEVICE) for r in range(SIZE)]
    own = torch.empty(2 + 3 * RANK, device=DEVICE)
    dist.reduce_scatter(own, uneven)
    equal(own, torch.full((2 + 3 * RANK,), 2.0 * RANK + 1), "reduce_scatter of different sizes")
    dist.all_gather(uneven, own)
    equal(torch.cat(uneven), torch.tensor([1.0] * 2 + [3.0] * 5), "all_gather of different sizes")
    raises(lambda: dist.all_gather([own, own], own[:1]), "a tensor of")
    parts = torch.zeros(4, 6, device=DEVICE)
    columns = parts[:, ::2]  # every other column: not contiguous
    columns += RANK + 1
    dist.all_reduce(columns)
    equal(parts, torch.tensor([3.0, 0, 3, 0, 3, 0]).repeat(4, 1), "a part of a tensor")
    half = torch.full((5,), 1 + RANK * 2**-11, dtype=torch.float16, device=DEVICE)
    dist.all_reduce(half)
    equal(half, torch.full((5,), 2.0, dtype=torch.float16), "half precision")
    message = torch.full((2,), float(RANK), device=DEVICE)
    if RANK == 0:
        assert dist.recv(message) == 1
        equal(message, torch.ones(2), "a message from any rank")
    else:
        dist.send(message, 0)
    x = torch.full((4,), 2.0, device=DEVICE)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():  # polling begins it
        time.sleep(0.001)
    assert work.wait() and work.is_completed() and work.get_future().wait()[0] is not None
    equal(x, torch.full((4,), 4.0), "with a future")


# ---- networks


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)


def batch():
    torch.manual_seed(1)
    return torch.randn(16, 16)


def train(model, rows, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        model(rows).pow(2).mean().backward()
        optimizer.step()


def full(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def networks():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(DEVICE, (SIZE,))  # the first use of the device, and of torch.distributed
    assert torch.headrace.current_device() == RANK
    single = network()
    train(single, batch().to(DEVICE))
    rows = batch().chunk(SIZE)[RANK].to(DEVICE)

    ddp = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.001)
    train(ddp, rows)
    assert_equal_one_process(ddp, single, "DDP")
    torch.headrace.synchronize()
    before, optimizer = torch.headrace.stats()["commits"], torch.optim.SGD(ddp.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss = ddp(rows).pow(2).mean()
    loss.backward()
    optimizer.step()
    loss.item()
    buckets = int(ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].count(",")) + 1
    commits = torch.headrace.stats()["commits"] - before
    assert commits == 1 and buckets > 1, f"{commits} commits, {buckets} buckets"
    gradients_after_a_read(rows)

    sharded = network()
    for layer in (sharded[0], sharded[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(sharded, rows)
    assert_equal_one_process(sharded, single, "FSDP2")
    coalescing()
    groups()
    dist.destroy_process_group()


def gradients_after_a_read(rows):
    """Copies of averages are left to the next commit if the host reads the loss: they are read, updated and dropped."""
    single, model = network(), network()
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    networks = (single, batch().to(DEVICE)), (ddp, rows)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1) for network, _ in networks]
    for step in range(6):
        for (network_, inputs), optimizer in zip(networks, optimizers, strict=True):
            optimizer.zero_grad(set_to_none=step != 3)
            for _ in range(2 if step == 4 else 1):
                loss = network_(inputs).pow(2).mean()
                loss.backward()
                loss.item()
            if step == 2:
                nn.utils.clip_grad_norm_(network_.parameters(), 0.01)
            optimizer.step()
            loss.item()
        for mine, whole in zip(model.parameters(), single.parameters(), strict=True):
            if step != 1:
                torch.testing.assert_close(mine.grad.cpu(), whole.grad.cpu(), msg=f"gradients of step {step}")
    assert_equal_one_process(model, single, "a read between backward and optimizer")


def assert_equal_one_process(model, single, what, rtol=1e-5, atol=1e-6):
    for mine, whole in zip(model.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(full(mine).detach().cpu(), whole.detach().cpu(), rtol=rtol, atol=atol, msg=what)


def wait_beside_the_device(model, rows):
    """A rank that waits for something else, or for nothing, keeps no other one waiting for its gradients."""
    begin = time.perf_counter()
    for _ in range(3):
        model.zero_grad()
        model(rows).pow(2).mean().backward()
        if RANK == 1:
            next(model.parameters()).grad.cpu()
        dist.all_reduce(torch.ones(1))  # of the host, by gloo
    for _ in range(3):
        model.zero_grad()
        model(rows).pow(2).mean().backward()
        if RANK == 1:
            next(model.parameters()).grad.cpu()
    dist.barrier()
    assert time.perf_counter() - begin < 30


def shard(model):
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    return model


def normed():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)).to(DEVICE)


def trainings():
    """DDP and FSDP2, eager and compiled, with hooks and SyncBatchNorm, against one process on the whole batch."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    begin(backend=None)
    torch.headrace.set_device(RANK)
    whole, rows = batch().to(DEVICE), batch().chunk(SIZE)[RANK].to(DEVICE)
    single = network()
    train(single, whole)
    for is_compiled in (False, True):
        megabytes = 1 if is_compiled else 0.001  # torch.compile wants no less than the first bucket's megabyte
        for wrap in (lambda m, cap=megabytes: nn.parallel.DistributedDataParallel(m, bucket_cap_mb=cap), shard):
            model = wrap(network())
            train(torch.compile(model, backend="headrace") if is_compiled else model, rows)
            assert_equal_one_process(model, single, f"{type(model).__name__}, compiled: {is_compiled}")
    wait_beside_the_device(nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.001), rows)
    for hook, error in ((default_hooks.bf16_compress_hook, 2**-8), (default_hooks.fp16_compress_hook, 2**-11)):
        model = nn.parallel.DistributedDataParallel(network())
        model.register_comm_hook(None, hook)
        train(model, rows)
        assert_equal_one_process(model, single, hook.__name__, rtol=4 * error, atol=4 * error)
    single = normed()
    train(single, whole)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(normed())
    train(nn.parallel.DistributedDataParallel(model), rows)
    assert_equal_one_process(model, single, "SyncBatchNorm", rtol=1e-4, atol=1e-5)
    for mine, its in zip(model.buffers(), single.buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), its.cpu(), rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


def coalescing():
    def ones(count=2):
        return torch.ones(count, device=DEVICE)

    device = torch.device(DEVICE)
    a, b = ones(), ones(3)
    with dist._coalescing_manager(device=device):
        dist.all_reduce(a)
        dist.all_reduce(b)
    equal(a, torch.full((2,), 2.0), "coalesced")
    equal(b, torch.full((3,), 2.0), "coalesced")
    outs = [torch.zeros(SIZE * 2, device=DEVICE) for _ in range(2)]
    with dist._coalescing_manager(device=device, async_ops=True) as works:
        for out in outs:
            dist.all_gather_into_tensor(out, ones() * RANK)
    works.wait()
    equal(outs[1], torch.tensor([0.0, 0, 1, 1]), "coalesced gather")
    # A block that ends by an error runs nothing, and leaves nothing behind.
    c = ones()

    def fail():
        with dist._coalescing_manager(device=device):
            dist.broadcast(c, 0)
            raise ValueError("inside")

    raises(fail, "inside")
    raises(lambda: refuse(device))
    for run in (dist.all_reduce, lambda t: dist.broadcast(t, 0)):
        x = ones() * (RANK + 1)
        run(x)
        equal(x, torch.full((2,), 3.0 if run is dist.all_reduce else 1.0), "after an error")


def refuse(device):
    with dist._coalescing_manager(device=device):
        dist.broadcast(torch.ones(2, device=DEVICE), 0)
        dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2, device=DEVICE))


def groups():
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    x = torch.full((2,), RANK + 1.0, device=DEVICE)
    dist.all_reduce(x, group=alone)
    equal(x, torch.full((2,), RANK + 1.0), "a group of one rank")
    dist.all_reduce(x, group=dist.new_group([0, 1]))
    equal(x, torch.full((2,), 3.0), "a second group")


# ---- failures


def failures():
    begin(backend=None)
    x = torch.ones(3 + RANK, device=DEVICE)

    def differ(tensor):
        dist.all_reduce(tensor)
        tensor.cpu()

    raises(lambda: differ(x), "rank 0 runs all_reduce of 3", "rank 1 runs all_reduce of 4")
    y = torch.ones(2, dtype=(torch.float32, torch.int32)[RANK], device=DEVICE)
    raises(lambda: differ(y), "f32", "i32")
    z = torch.ones(2, device=DEVICE)
    dist.all_reduce(z)
    equal(z, torch.full((2,), 2.0), "after a mismatch")
    raises(lambda: dist.all_reduce(torch.ones(2, device=DEVICE), op=dist.ReduceOp.BAND), "and")
    for root in (-1, SIZE):
        for call in (dist.broadcast, dist.reduce):
            raises(lambda call=call, root=root: call(z, root), f"root {root} of a group of {SIZE}")

    short = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if RANK == 0:
        seconds = raises(lambda: differ_in(short), "rank 0 has waited for rank 1")
        assert 0.5 < seconds < 10, seconds
    dist.barrier()
    raises(lambda: differ_in(short), "rank 0 has waited for rank 1")  # both: the group is broken
    dist.all_reduce(z)  # the other one is not
    equal(z, torch.full((2,), 4.0), "after a timeout of another group")

    dropping = dist.new_group([0, 1])
    if RANK == 1:
        raises(lambda: differ_in(dropping, torch.zeros(2, device=DEVICE)[torch.tensor([7], device=DEVICE)]), "7")
    else:
        raises(lambda: differ_in(dropping), "dropped a collective")

    aborted = dist.new_group([0, 1])
    if RANK == 0:
        raises(lambda: differ_in(aborted), "aborted")
    else:
        aborted.abort()

    if RANK == 1:
        torch.headrace.synchronize()
        os.kill(os.getpid(), 9)
    seconds = raises(lambda: differ(z), "rank 1 has ended")
    assert seconds < 10, seconds
    dist.destroy_process_group()


def never_joins():
    if RANK == 0:
        raises(lambda: begin(backend="headrace", seconds=3), "timeout")
    else:
        store = next(iter(dist.rendezvous("env://")))  # the other rank's begins
        time.sleep(1)
        assert store


def is_killed():
    """The first rank, while it waits for the other one. Its segment has a name then."""
    if RANK == 0:
        threading.Thread(target=end_when_waiting, daemon=True).start()
        begin(backend="headrace")
    else:
        store = next(iter(dist.rendezvous("env://")))
        time.sleep(1)
        assert store


def end_when_waiting():
    while not list(pathlib.Path("/dev/shm").glob(f"headrace-{os.getuid()}-{os.getpid()}-*")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def differ_in(group, x=None):
    x = torch.ones(1, device=DEVICE) if x is None else x
    dist.all_reduce(x, group=group)
    x.cpu()


def train_by_accelerate(accelerator, rows):
    torch.manual_seed(1)
    model, data = nn.Linear(4, 2), torch.utils.data.DataLoader(rows, batch_size=8 // accelerator.num_processes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for x in data:
        with accelerator.autocast():
            out = model(x)
        accelerator.backward(out.float().square().mean())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, x


def accelerate():
    """Accelerator with several processes, against one on the whole data."""
    import accelerate

    rows = torch.arange(32 * 4).reshape(32, 4).sin()
    single = trained_by_one_process(accelerate, rows)
    for precision, bound in (("no", 1e-6), ("bf16", 2e-2)):
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator(mixed_precision=precision)
        assert accelerator.device == torch.device(DEVICE, RANK) and accelerator.num_processes == SIZE
        model, x = train_by_accelerate(accelerator, rows)
        assert isinstance(model, nn.parallel.DistributedDataParallel) and x.device.type == DEVICE
        assert_equal_one_process(model, single, f"accelerate, {precision}", rtol=bound, atol=bound)
        assert accelerator.gather_for_metrics(x).shape == (8, 4)
        ranks = accelerator.gather(torch.tensor([RANK], device=accelerator.device))
        equal(ranks, torch.arange(SIZE), "gather of accelerate")
        equal(accelerator.reduce(torch.ones(2, device=accelerator.device)), torch.full((2,), float(SIZE)), "reduce")
        assert accelerate.utils.gather_object([RANK]) == list(range(SIZE))
        del model  # a model that outlives its group holds the GIL when it joins gloo's threads, which may wait for that
        accelerator.free_memory()
    accelerator.end_training()


def trained_by_one_process(accelerate, rows):
    variables = {name: os.environ.pop(name) for name in ("LOCAL_RANK", "WORLD_SIZE")}
    model, _ = train_by_accelerate(accelerate.Accelerator(cpu=True), rows)
    os.environ.update(variables)
    return model


if __name__ == "__main__":
    globals()[sys.argv[1]]()
