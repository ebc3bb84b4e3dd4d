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
    assert whole.tolist() == [0.0] * 4  # each process has its own copy


def send(queue, back):
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
