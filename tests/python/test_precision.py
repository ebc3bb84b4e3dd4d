"""torch.headrace.suggest_autocast."""

import pytest
import torch
from headrace import precision
from torch import nn


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to("headrace").eval()


def inputs(rows=16):
    return torch.randn(rows, 32).to("headrace")


def halve_times(monkeypatch, dtype):
    """As on a machine where the dtype is much faster."""
    run = precision._run

    def faster(call, arguments, keywords, own, repeats):
        result, seconds = run(call, arguments, keywords, own, repeats)
        return result, 1e-3 if own == dtype else 1e-2

    monkeypatch.setattr(precision, "_run", faster)


def test_layers_have_times_and_errors():
    found = torch.headrace.suggest_autocast(network(), inputs(), repeats=1)
    assert [layer.name for layer in found.layers] == ["0", "2", "3"]
    linear = found.layers[0]
    assert linear.kind == "Linear" and all(seconds > 0 for seconds in linear.seconds.values())
    assert 0 < linear.errors[torch.float16] < linear.errors[torch.bfloat16] < 0.02
    assert linear.errors[torch.float32] == 0
    lines = str(found).splitlines()
    assert lines[0].split()[:2] == ["layer", "kind"] and len(lines) == 6


def test_a_faster_dtype_is_proposed(monkeypatch):
    halve_times(monkeypatch, torch.bfloat16)
    model, x = network(), inputs()
    found = torch.headrace.suggest_autocast(model, x, repeats=1)
    assert found.dtype == torch.bfloat16 and found.speedup == pytest.approx(10) and found.keep == ()
    assert found.layers[0].proposal == torch.bfloat16
    assert "torch.autocast" in str(found)
    with torch.no_grad(), found.autocast():
        assert model(x).dtype == torch.bfloat16


def test_no_dtype_beyond_the_tolerance_is_proposed(monkeypatch):
    halve_times(monkeypatch, torch.bfloat16)
    found = torch.headrace.suggest_autocast(network(), inputs(), tolerance=1e-9, repeats=1)
    assert found.dtype == torch.float32 and "Stay in float32" in str(found)
    assert found.layers[0].proposal == torch.float32
    with found.autocast():
        assert not torch.is_autocast_enabled("headrace")


def test_overflow_is_an_infinite_error(monkeypatch):
    halve_times(monkeypatch, torch.float16)
    layer = nn.Linear(4, 4).to("headrace")
    found = torch.headrace.suggest_autocast(layer, torch.full((2, 4), 1e30, device="headrace"), repeats=1)
    assert found.layers[0].errors[torch.float16] == float("inf") and found.dtype == torch.float32


def test_layers_with_several_results_and_keywords():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(32, 8, batch_first=True)

        def forward(self, x):
            return self.lstm(input=x)[0]

    found = torch.headrace.suggest_autocast(Model().to("headrace"), torch.randn(2, 5, 32).to("headrace"), repeats=1)
    assert [layer.kind for layer in found.layers] == ["LSTM"]


def test_an_empty_batch_has_no_error():
    found = torch.headrace.suggest_autocast(network(), inputs(0), repeats=1)
    assert all(error == 0 for layer in found.layers for error in layer.errors.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.headrace.suggest_autocast(nn.Linear(2, 2), inputs()), "must be on headrace, one tensor is on cpu"),
        (lambda: torch.headrace.suggest_autocast(network(), torch.ones(2, 32)), "one tensor is on cpu"),
        (lambda: torch.headrace.suggest_autocast(network(), inputs(), dtypes=(torch.int8,)), "not torch.int8"),
        (lambda: torch.headrace.suggest_autocast(nn.ReLU(), inputs()), "ReLU calls no layer"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
