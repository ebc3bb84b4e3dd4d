"""torch.compile(backend="headrace"): the same results as eager code on torch's CPU device, in few captures, and what can't
be captured is right too, and counted."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from networks import CASES
from support import DEVICE, assert_same, assert_summed
from test_networks import gradient_difference, loss_difference, soften
from torch import nn

pytestmark = pytest.mark.device_only

STEPS = 5


@pytest.fixture(autouse=True)
def fresh():
    """No test finds what another one compiled."""
    torch._dynamo.reset()
    torch.headrace.reset_stats()
    yield
    torch._dynamo.reset()


# torch's own tracing log is on in these tests' DEBUG capture and buries the message of a failure
logging.getLogger("torch.__trace").setLevel(logging.INFO)


def compiled(function, **names):
    return torch.compile(function, backend="headrace", **names)


def compiled_network(model):
    if type(model).__name__ != "DCGAN":
        return compiled(model)
    model.generator, model.discriminator = compiled(model.generator), compiled(model.discriminator)
    return model


def counts():
    stats = torch.headrace.stats()
    return {name: stats["graph_" + name] for name in ("captures", "runs", "eager_runs")}


def train(case, model, batches, device, compile_it):
    """Losses, gradients and state after each network's own training steps; the network itself is compiled."""
    model = copy.deepcopy(model).to(device)
    optimizers = case.optimizers(model, lambda p: torch.optim.Adam(p, lr=1e-4))
    if compile_it:
        model = compiled_network(model)
    losses = [torch.stack(case.step(model, optimizers, tuple(t.to(device) for t in batch))) for batch in batches]
    gradients = {name: p.grad.detach().cpu().double() for name, p in model.named_parameters()}
    gradients = {name.replace("_orig_mod.", ""): g for name, g in gradients.items()}
    state = {name.replace("_orig_mod.", ""): t.detach().cpu() for name, t in model.state_dict().items()}
    return torch.stack(losses).cpu().double(), gradients, state


@pytest.mark.parametrize("name", CASES)
def test_networks_train_as_on_the_cpu(name, device):
    case = CASES[name]
    torch.manual_seed(1)
    model = soften(case.build(small=True, dropout=0.0))
    generator = torch.Generator().manual_seed(1)
    batches = [case.batch(small=True, generator=generator) for _ in range(STEPS)]
    losses, gradients, state = train(case, model, batches, "cpu", False)
    actual_losses, actual_gradients, actual_state = train(case, model, batches, device, True)
    assert loss_difference(actual_losses, losses) < 1e-4
    assert gradient_difference(actual_gradients, gradients) < 1e-3
    for key, value in state.items():
        if "num_batches_tracked" in key:
            assert actual_state[key] == value, key
    seen = counts()
    assert seen["eager_runs"] == 0
    assert seen["runs"] >= (2 * STEPS if name != "lstm" else 0)  # dynamo leaves nn.LSTM to eager code
    assert seen["captures"] <= 8


@pytest.mark.parametrize("name", CASES)
def test_networks_infer_as_on_the_cpu(name, device):
    case = CASES[name]
    model = case.build(small=True).eval()
    batch = case.batch(small=True)
    moved = compiled_network(copy.deepcopy(model).to(device))
    with torch.no_grad():
        expected = case.infer(model, batch)
        for _ in range(3):
            actual = case.infer(moved, tuple(t.to(device) for t in batch))
    assert_summed(actual, expected, name, factor=5)
    assert counts()["eager_runs"] == 0
    assert counts()["runs"] >= (3 if name != "lstm" else 0)
