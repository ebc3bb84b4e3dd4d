"""Tensors of the device in other processes: torch.multiprocessing with spawn, its queues, and workers of DataLoader."""

import pytest
import torch
import torch.multiprocessing
from torch import nn

pytestmark = pytest.mark.device_only
SPAWN = torch.multiprocessing.get_context("spawn")


def describe(value):
    return str(value.device), value.dtype, value.stride(), value.requires_grad, type(value).__name__, value.tolist()


def answer(queue, *values):
    torch.set_num_threads(1)
    queue.put([describe(value) for value in values])


def ask(function, *values):
    queue = SPAWN.Queue()
    process = SPAWN.Process(target=function, args=(queue, *values))
    process.start()
    try:
        return queue.get(timeout=120)
    finally:
        process.join(120)
        assert process.exitcode == 0


def test_several_tensors_arrive_on_the_device(device):
    base = torch.arange(12.0, device=device).reshape(3, 4)
    values = [
        base,
        base[1:, ::2],
        base.t(),
        torch.tensor([True, False], device=device),
        torch.tensor([1 + 2j], device=device),
        torch.ones(2, dtype=torch.bfloat16, device=device),
        torch.empty(0, 3, device=device),
        torch.tensor(5, device=device),
        torch.ones(2, device=device, requires_grad=True),
        nn.Parameter(torch.ones(2, device=device), requires_grad=False),
        torch.ones(2),
    ]
    assert ask(answer, *values) == [describe(value) for value in values]


def run_module(queue, model, x):
    torch.set_num_threads(1)
    queue.put(([str(p.device) for p in model.parameters()], model(x).tolist()))


def test_a_module_arrives_on_the_device(device):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to(device).eval()
    x = torch.randn(5, 4, device=device)
    devices, result = ask(run_module, model, x)
    assert devices == [str(x.device)] * 4 and result == model(x).tolist()


def share(queue, whole, part):
    part.fill_(7.0)
    queue.put(whole.tolist())


def test_views_of_one_message_share_their_storage(device):
    whole = torch.zeros(4, device=device)
    assert ask(share, whole, whole[1:3]) == [0.0, 7.0, 7.0, 0.0]


def exchange(queue, back, value):
    torch.set_num_threads(1)
    value.mul_(10)
    made = torch.arange(4.0, device=value.device)
    torch.headrace.synchronize()
    queue.put(made)
    back.get(timeout=120)  # the other has written
    queue.put((value.tolist(), made.tolist()))


def test_both_processes_see_what_the_other_wrote(device):
    queue, back = SPAWN.Queue(), SPAWN.Queue()
    value = torch.ones(3, device=device)
    process = SPAWN.Process(target=exchange, args=(queue, back, value))
    process.start()
    made = queue.get(timeout=120)
    assert made.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert value.tolist() == [10.0] * 3
    value.add_(5)
    made.neg_()
    torch.headrace.synchronize()
    back.put(None)
    assert queue.get(timeout=120) == ([15.0] * 3, [0.0, -1.0, -2.0, -3.0])
    process.join(120)
    assert process.exitcode == 0
    assert made.tolist() == [0.0, -1.0, -2.0, -3.0]  # the memory outlives the sender


def train(model, steps):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(8, 2, device=model.weight.device)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - 3).square().mean().backward()
        optimizer.step()
        torch.headrace.synchronize()


def test_several_processes_train_one_model(device):
    model = nn.Linear(2, 1).to(device)
    model.share_memory()
    before = model.weight.tolist()
    workers = [SPAWN.Process(target=train, args=(model, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert model.weight.tolist() != before
    assert model(torch.ones(1, 2, device=device)).item() == pytest.approx(3, abs=0.05)


def open_damaged(queue, description, offset):
    from headrace._library import _C

    found = []
    for data, place, size in ((description[:-1], offset, 4), (description, -4, 4), (description, offset, 1 << 40)):
        try:
            _C.open_shared(data, place, size, -1, 0, None, 0)
            found.append("opened")
        except (ValueError, RuntimeError) as error:
            found.append(type(error).__name__)
    queue.put(found)


def test_damaged_descriptions_are_refused(device):
    from headrace._library import _C

    x = torch.ones(4, device=device)
    description, offset, _ = _C.share(x)
    assert ask(open_damaged, description, offset) == ["ValueError"] * 3
    with pytest.raises(TypeError, match="expected a tensor of a headrace device"):
        _C.share(torch.ones(2))


def test_the_sender_keeps_memory_as_long_as_the_receiver(device):
    from headrace import loans

    queue, back, values = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Queue()
    process = SPAWN.Process(target=receive, args=(queue, back, values))
    process.start()
    values.put(torch.ones(1000, device=device))
    assert queue.get(timeout=120) == 1000
    torch.headrace.ipc_collect()
    assert loans._lent == []
    back.put(None)
    process.join(120)
    assert process.exitcode == 0


def receive(queue, back, values):
    torch.set_num_threads(1)
    queue.put(values.get(timeout=120).sum().item())
    back.get(timeout=120)


def send(queue, back):
    import headrace.torch  # noqa: F401 (a torch that does not load the device by itself)

    torch.set_num_threads(1)
    queue.put((torch.arange(3.0, device="headrace") + 1, torch.ones(2, 2, device="headrace").t()))
    back.get(timeout=120)  # the receiver has opened this process's shared memory


def test_tensors_of_a_worker_arrive_on_the_device(device):
    queue, back = SPAWN.Queue(), SPAWN.Queue()
    process = SPAWN.Process(target=send, args=(queue, back))
    process.start()
    first, second = queue.get(timeout=120)
    back.put(None)
    process.join(120)
    assert first.device == second.device == torch.device("headrace:0")
    assert first.tolist() == [1.0, 2.0, 3.0] and second.tolist() == [[1.0, 1.0], [1.0, 1.0]]


class OnDevice(torch.utils.data.Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, place):
        return self.values[place] * 2


def test_workers_of_a_loader_take_and_give_tensors_of_the_device(device):
    values = torch.arange(6.0, device=device)
    loader = torch.utils.data.DataLoader(
        OnDevice(values), batch_size=3, num_workers=1, multiprocessing_context="spawn"
    )
    batches = list(loader)
    assert [batch.tolist() for batch in batches] == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert all(batch.device.type == device.type for batch in batches)


def test_a_loan_ends_when_its_place_has_no_number(device):
    from headrace import loans
    from headrace._library import _C

    torch.headrace.ipc_collect()
    storage, before = torch.ones(3, device=device).untyped_storage(), len(loans._lent)
    (first, one), (second, two) = loans.lend(storage), loans.lend(storage)
    _C.end_loan(second, one)  # of another loan: stays
    torch.headrace.ipc_collect()
    assert len(loans._lent) == before + 2
    _C.end_loan(second, two)
    torch.headrace.ipc_collect()
    assert [place is first for _, place in loans._lent[before:]] == [True]
    _C.end_loan(first, one)
    torch.headrace.ipc_collect()
    assert len(loans._lent) == before
    with pytest.raises(TypeError, match="the place of a loan"):
        _C.end_loan(torch.zeros(2), 1)


def test_loans_end_with_the_process_that_borrowed(device):
    from headrace import loans

    value = torch.ones(1000, device=device)
    assert ask(answer, value) == [describe(value)]
    torch.headrace.ipc_collect()
    assert not any(storage.data_ptr() == value.data_ptr() for storage, _ in loans._lent)
