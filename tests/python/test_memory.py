"""torch.headrace's view of memory: statistics by torch's names, limits, summaries, profiles of memory."""

import gc
import json
import pickle
import time

import pytest
import torch
from support import DEVICE
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.cuda import _memory_viz
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.device_only

module = torch.headrace
ACCELERATOR = torch.accelerator.current_accelerator()
IS_ACCELERATOR = (
    hasattr(torch.accelerator, "memory_stats") and ACCELERATOR is not None and ACCELERATOR.type == "headrace"
)
MIB = 1 << 20


@pytest.fixture
def settled():
    """Nothing is pending, and nothing is limited afterwards."""
    gc.collect()
    module.synchronize()
    limit = module.memory_stats()["limit_bytes"]
    module.set_memory_limit(0)
    module.empty_cache()
    module.reset_peak_memory_stats()
    module.reset_accumulated_memory_stats()
    yield module.memory_stats()
    module.set_memory_limit(limit)


def test_statistics_have_the_names_of_torch(settled):
    x = torch.ones(MIB, device=DEVICE)
    small = torch.ones(100, device=DEVICE)
    module.synchronize()
    stats, before = module.memory_stats(), settled
    assert stats["allocated_bytes"] == stats["allocated_bytes.all.current"] == module.memory_allocated()
    assert stats["reserved_bytes"] == stats["reserved_bytes.all.current"] == module.memory_reserved()
    assert stats["allocated_bytes_peak"] == stats["allocated_bytes.all.peak"] == module.max_memory_allocated()
    assert stats["reserved_bytes_peak"] == stats["reserved_bytes.all.peak"] == module.max_memory_reserved()
    assert stats["allocation.large_pool.current"] > before["allocation.large_pool.current"]
    assert stats["allocation.small_pool.current"] > before["allocation.small_pool.current"]
    assert stats["requested_bytes.all.current"] >= 4 * MIB + 400
    for name in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "requested_bytes"):
        for metric in ("current", "allocated", "freed"):
            pools = (stats[f"{name}.{pool}.{metric}"] for pool in ("small_pool", "large_pool"))
            assert stats[f"{name}.all.{metric}"] == sum(pools)
    del x, small
    module.synchronize()
    after = module.memory_stats()
    assert after["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert after["allocated_bytes.all.freed"] >= 4 * MIB + 400
    nested = module.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["freed"] == module.memory_stats()["allocated_bytes.all.freed"]
    assert nested["num_ooms"] == 0


@pytest.mark.skipif(not IS_ACCELERATOR, reason="torch.accelerator is another device, or an older torch")
def test_the_statistics_of_torch_accelerator_are_the_same(settled):
    x = torch.ones(MIB, device=DEVICE)
    module.synchronize()
    theirs, ours = torch.accelerator.memory_stats(), module.memory_stats()
    common = {name: value for name, value in theirs.items() if name in ours}
    assert len(common) > 100 and common == {name: ours[name] for name in common}
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    assert x.sum().item() == MIB


def test_peaks_and_sums_are_reset(settled):
    x = torch.ones(4 * MIB, device=DEVICE)
    module.synchronize()
    del x
    assert module.max_memory_allocated() >= module.memory_allocated() + 16 * MIB
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.allocated"] >= 16 * MIB <= stats["allocated_bytes.all.freed"]
    for reset in (module.reset_peak_memory_stats, module.reset_max_memory_allocated, module.reset_max_memory_reserved):
        reset()
        assert module.max_memory_allocated() == module.memory_allocated()
        assert module.max_memory_reserved() == module.memory_reserved()
    assert module.memory_stats()["allocated_bytes.all.allocated"] >= 16 * MIB
    module.reset_accumulated_memory_stats()
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == stats["num_ooms"] == 0


def test_the_names_of_torch_mps(settled):
    assert module.current_allocated_memory() == module.memory_allocated()
    assert module.driver_allocated_memory() == module.memory_reserved()
    total = module.mem_get_info()[1]
    assert module.recommended_max_memory() == total
    module.set_memory_limit(1 << 30)
    assert module.recommended_max_memory() == 1 << 30


def test_limits_are_fractions(settled):
    total = module.mem_get_info()[1]
    assert module.get_per_process_memory_fraction() == 1.0
    module.set_per_process_memory_fraction(0.5)
    assert module.memory_stats()["limit_bytes"] == total // 2
    assert module.get_per_process_memory_fraction() == pytest.approx(0.5)
    module.set_per_process_memory_fraction(0)  # as torch.mps: no limit
    assert module.memory_stats()["limit_bytes"] == 0
    assert torch.ones(10, device=DEVICE).sum().item() == 10
    module.set_per_process_memory_fraction(1)
    assert module.memory_stats()["limit_bytes"] == total


@pytest.mark.parametrize("wrong", [-1, 2, 1.5, -0.1, float("nan"), float("inf")])
def test_other_fractions_are_refused(settled, wrong):
    with pytest.raises(ValueError, match="between 0 and 1"):
        module.set_per_process_memory_fraction(wrong)
    assert module.memory_stats()["limit_bytes"] == 0


@pytest.mark.parametrize("wrong", [True, False, None, "0.5", [1]])
def test_fractions_are_numbers(settled, wrong):
    with pytest.raises(TypeError, match="fraction must be a number"):
        module.set_per_process_memory_fraction(wrong)
    with pytest.raises(TypeError, match="size must be a number"):
        module.set_memory_limit(wrong)
    for size in (-1, float("nan"), 2.0**70):
        with pytest.raises(ValueError, match="0 or more"):
            module.set_memory_limit(size)
    assert module.memory_stats()["limit_bytes"] == 0


def test_out_of_memory_names_the_largest_blocks(settled):
    held = [torch.ones(MIB, device=DEVICE) for _ in range(3)]
    module.synchronize()
    module.set_memory_limit(module.memory_reserved() + MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"the largest in use: .*3 of 4194304 bytes"):
        torch.ones(64 * MIB, device=DEVICE).sum().cos_().item() if module.synchronize() else None
        torch.ones(64 * MIB, device=DEVICE).cumsum(0).tolist()
    assert module.memory_stats()["num_ooms"] > 0
    module.set_memory_limit(0)
    assert all(x.sum().item() == MIB for x in held)


def test_a_summary_lists_quantities_and_tensors(settled):
    held = [torch.ones(3, MIB, device=DEVICE) for _ in range(2)]
    view = held[0][1:]
    shapes = ShapeEnv()  # tensors without memory, of a length that is a symbol: torch.compile keeps such
    with FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.empty(5, MIB, device=DEVICE), static_shapes=False)
    module.synchronize()
    text = module.memory_summary()
    assert "bytes in use" in text and "small" in text and "limit none" in text
    assert "24.0 MiB  2 x float32 [3, 1048576]" in text
    assert "small" not in module.memory_summary(abbreviated=True)
    assert fake.device.type == "headrace" and "[5" not in text
    assert view.sum().item() == 2 * MIB


def test_a_snapshot_lists_all_segments(settled):
    x = torch.ones(MIB, device=DEVICE)
    small = [torch.ones(100, device=DEVICE) for _ in range(5)]
    module.synchronize()
    segments = module.memory_snapshot()
    stats = module.memory_stats()
    assert len(segments) == stats["segment.all.current"]
    assert sum(segment["total_size"] for segment in segments) == stats["reserved_bytes"]
    assert sum(segment["allocated_size"] for segment in segments) == stats["allocated_bytes"]
    assert sum(segment["requested_size"] for segment in segments) == stats["requested_bytes.all.current"]
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and block["state"] in ("active_allocated", "inactive")
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    assert any(block["requested_size"] == 4 * MIB for segment in segments for block in segment["blocks"])
    assert x.sum().item() + len(small) == MIB + 5


# ---- a history of memory, for memory_viz


def make_with_a_name():
    return torch.ones(3 * MIB, device=DEVICE)


@pytest.fixture
def history(settled):
    module.memory._record_memory_history(clear_history=True)
    yield
    module.memory._record_memory_history(None, clear_history=True)


def test_a_history_has_events_and_the_stacks_that_made_tensors(history, tmp_path):
    x = make_with_a_name()
    module.synchronize()
    y = x * 2
    module.synchronize()
    del y
    module.synchronize()
    module.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    events = snapshot["device_traces"][0]
    assert [e["action"] for e in events if e["size"] == 12 * MIB and "segment" not in e["action"]] == [
        "alloc",
        "alloc",
        "free_requested",
        "free_completed",
    ]
    made = next(e for e in events if e["action"] == "alloc" and e["size"] == 12 * MIB)
    assert made["frames"][0]["name"] == "make_with_a_name" and made["frames"][0]["filename"].endswith("test_memory.py")
    assert abs(made["time_us"] / 1e6 - time.time()) < 600
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["requested_size"] == 12 * MIB]
    assert len(blocks) == 1 and blocks[0]["frames"] == made["frames"] and blocks[0]["address"] == made["addr"]
    names = [frame["name"] for e in events if e["action"] == "free_completed" for frame in e["frames"]]
    assert "test_a_history_has_events_and_the_stacks_that_made_tensors" in names
    assert x.sum().item() == 3 * MIB


def test_tools_of_torch_read_snapshots(history):
    x = make_with_a_name().exp()
    module.synchronize()
    snapshot = module.memory._snapshot()
    assert "cudaMalloc" in _memory_viz.trace(snapshot) and "12.0MiB" in _memory_viz.segsum(snapshot)
    assert "make_with_a_name" in _memory_viz.trace_plot(snapshot) or "<html>" in _memory_viz.trace_plot(snapshot)
    assert x.numel() == 3 * MIB


def test_a_history_is_bounded_and_ends(settled):
    record = module.memory._record_memory_history
    with pytest.raises(ValueError, match="enabled must be"):
        record("some")
    with pytest.raises(ValueError, match="context must be"):
        record("all", context="none")
    record("all", context=None, max_entries=10, clear_history=True)
    for _ in range(20):
        torch.ones(MIB, device=DEVICE).tolist() if _ == 0 else torch.ones(50, device=DEVICE).tolist()
    trace = module.memory._snapshot()["device_traces"][0]
    assert 10 <= len(trace) <= 20 and not any(event["frames"] for event in trace)
    module.set_memory_limit(module.memory_reserved() + MIB)
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(64 * MIB, device=DEVICE).cumsum(0).tolist()
    module.set_memory_limit(0)
    assert any(event["action"] == "oom" for event in module.memory._snapshot()["device_traces"][0])
    record("state", clear_history=True)
    x = make_with_a_name()
    module.synchronize()
    snapshot = module.memory._snapshot()
    assert snapshot["device_traces"][0] == []
    assert any(block["frames"] for segment in snapshot["segments"] for block in segment["blocks"])
    record(None, clear_history=True)
    y = make_with_a_name() + x
    module.synchronize()
    snapshot = module.memory._snapshot()
    assert snapshot["device_traces"][0] == [] and y.numel() == x.numel()
    assert not any(block["frames"] for segment in snapshot["segments"] for block in segment["blocks"])


# ---- torch.profiler's profile_memory


def test_a_profile_of_memory_shows_the_bytes_of_operators(settled):
    x = torch.ones(256, 1024, device=DEVICE)
    module.synchronize()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        y = x + 1
        z = torch.empty(100, device=DEVICE)
        del y
        module.synchronize()
    events = {event.key: event for event in p.key_averages()}
    assert events["aten::add"].self_device_memory_usage == MIB
    assert events["aten::empty"].self_device_memory_usage == 400 == z.numel() * 4
    released = [e for e in p.key_averages() if e.key == "[memory]"]
    assert sum(event.self_device_memory_usage for event in released) == -MIB
    assert x.sum().item() == 256 * 1024


def test_a_profile_of_memory_covers_a_training_step(settled, tmp_path):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(DEVICE)
    x = torch.randn(32, 64, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as p:
        model(x).square().mean().backward()
        model.zero_grad()
        module.synchronize()
    used = {e.key: e.self_device_memory_usage for e in p.key_averages()}
    assert used["aten::linear"] == 32 * 128 * 4 + 32 * 8 * 4
    assert used["aten::relu"] >= 32 * 128 * 4 or used["aten::clamp_min"] >= 32 * 128 * 4
    p.export_memory_timeline(str(tmp_path / "timeline.json"), device="headrace:0")
    times, sizes = json.loads((tmp_path / "timeline.json").read_text())
    assert len(times) == len(sizes) > 10 and max(map(sum, sizes)) >= 32 * 128 * 4


def test_memory_is_not_reported_outside_of_profiles(settled):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
        x = torch.ones(10, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU]) as p:
        y = x + 1
    assert all(event.self_device_memory_usage == 0 for event in p.key_averages())
    assert y.sum().item() == 20
