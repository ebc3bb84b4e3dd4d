"""Insufficient memory fails the operation that needs it and later ones, not earlier ones: a loop that halves its
batch and tries again loses no step."""

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, synchronize


@pytest.fixture
def limited():
    synchronize()
    torch.headrace.empty_cache()
    torch.headrace.set_memory_limit(64 << 20)
    yield
    torch.headrace.set_memory_limit(0)


def make_model(device):
    torch.manual_seed(0)
    return torch.nn.Linear(16, 16).to(device)


def train(model, optimizer, rows, width):
    """A step whose activations are rows x width x 16 numbers; the forward pass of one is pending with the step
    before."""
    weights = [p for p in model.parameters()]
    x = torch.ones(rows, 16, device=weights[0].device)
    y = model(x).unsqueeze(1).expand(rows, width, 16).sin()
    kept = y.cumsum(1)  # held until the error is there
    loss = kept.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return kept, loss


def reference(batches, width):
    model = make_model("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in batches:
        train(model, optimizer, rows, width)
    return model


def test_halving_the_batch_and_trying_again_loses_no_step(limited):
    model = make_model(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows, width, done = 4, 64, []
    rows_next = [4, 8, 1 << 14, 8]  # the third does not fit
    failures = 0
    while rows_next:
        rows = rows_next.pop(0)
        try:
            train(model, optimizer, rows, width)
            if rows > 8 or not rows_next:
                synchronize()
            done.append(rows)
        except torch.OutOfMemoryError:
            failures += 1
            rows_next.insert(0, rows // 2)
    assert failures >= 1 and max(done) < 1 << 14 and done[:2] == [4, 8]
    want = reference(done, width)
    for mine, theirs in zip(model.parameters(), want.parameters()):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


def test_what_was_recorded_before_the_failing_operation_is_done(limited):
    counter, old = torch.zeros(8, device=DEVICE), torch.ones(8, device=DEVICE)
    synchronize()
    counter += 1
    fits = old * 3
    large = torch.ones(1 << 26, device=DEVICE) + counter[0]
    counter += 10
    behind = counter + 1
    with pytest.raises(torch.OutOfMemoryError, match="bytes requested"):
        synchronize()
    assert counter.cpu().tolist() == [1.0] * 8
    assert fits.cpu().tolist() == [3.0] * 8 and old.cpu().tolist() == [1.0] * 8
    for lost in (large, behind):
        with pytest.raises(torch.OutOfMemoryError):
            lost.cpu()
    counter += 100
    assert counter.cpu().tolist() == [101.0] * 8
    assert F.relu(old).sum().item() == 8


def test_a_general_plan_without_memory_costs_nothing_but_its_run(limited):
    """New dims of a known structure need more memory than there is; the next ones do not."""

    def sums(rows):  # a running sum of 1,024 columns, from one number
        x = torch.ones(1, 1, device=DEVICE).expand(rows, 1024) * 2
        return x.cumsum(0)[-1].sum().item()

    torch.headrace.set_memory_limit(0)
    for rows in range(300, 312):
        assert sums(rows) == 2048 * rows
    before = torch.headrace.stats()["general_plans"]
    torch.headrace.empty_cache()
    torch.headrace.set_memory_limit(torch.headrace.memory_reserved() + (4 << 20))
    for rows in (580, 590):
        with pytest.raises(torch.OutOfMemoryError, match="temporaries.* requested"):
            sums(rows)
    assert sums(200) == 2048 * 200
    torch.headrace.set_memory_limit(0)
    for rows in (590, 580, 305):
        assert sums(rows) == 2048 * rows
    assert torch.headrace.stats()["general_plans"] >= before + 4
