"""Several streams of a device: results are those of the program's order, and errors stay in their stream."""

import gc
import threading
import time

import pytest
import torch
from support import DEVICE, DRIVER, synchronize
from torch import nn

pytestmark = pytest.mark.device_only


@pytest.fixture
def streams():
    synchronize()
    yield torch.headrace.Stream(), torch.headrace.Stream()
    synchronize()


def wait_for(query):
    deadline = time.monotonic() + 60
    while not query():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ones(*sizes):
    return torch.ones(*sizes, device=DEVICE)


@pytest.mark.parametrize("waits", [True, False])
def test_results_of_two_streams(streams, waits):
    first, second = streams
    with torch.headrace.stream(first):
        x = ones(1000) * 3
        y = x.sin()
    if waits:
        second.wait_stream(first)
    with torch.headrace.stream(second):
        z = x + y
        x.add_(1)
    if waits:
        torch.headrace.current_stream().wait_stream(second)
    expected = torch.full((1000,), 3.0)
    assert torch.allclose(z.cpu(), expected + expected.sin())
    assert torch.equal((x * 2).cpu(), (expected + 1) * 2)


def test_updates_in_turn_have_the_recorded_order(streams):
    x, expected = ones(64), 1.0
    order = [*streams, torch.headrace.default_stream()]
    for i in range(30):
        with torch.headrace.stream(order[i % 3]):
            if i % 2 == 0:
                x.mul_(2)
            else:
                x.sub_(0.5)
        expected = expected * 2 if i % 2 == 0 else expected - 0.5
    assert x.cpu().tolist() == [expected] * 64


def test_streams_that_read_the_same_weights_cut_nothing(streams):
    weight, x = torch.randn(8, 8).to(DEVICE), torch.randn(4, 8).to(DEVICE)
    for stream in streams:  # opens them
        with torch.headrace.stream(stream):
            (x @ weight).cpu()
    torch.headrace.reset_stats()
    results = [x, x]
    for _ in range(5):
        for i, stream in enumerate(streams):
            with torch.headrace.stream(stream):
                results[i] = torch.tanh(results[i] @ weight)
    synchronize()
    assert torch.equal(results[0].cpu(), results[1].cpu())
    stats = torch.headrace.stats()
    assert stats["operations"] == 20
    assert stats["commits"] <= 2 or not torch.headrace.get_device_properties().is_host


def train(choose):
    """Parameters and losses of a few steps; `choose(k)` is the stream of part k of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(8, 6).to(DEVICE), torch.randn(8, 3).to(DEVICE)
    losses = []
    for _ in range(4):
        with torch.headrace.stream(choose(0)):
            hidden = model[:2](x)
        with torch.headrace.stream(choose(1)):
            loss = (model[2](hidden) - y).square().mean()
        with torch.headrace.stream(choose(2)):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return [t.detach().cpu() for t in (*losses, *model.parameters())]


def test_autograd_across_streams(streams):
    default = torch.headrace.default_stream()
    expected = train(lambda k: default)
    for order in ((*streams, default), (default, *streams), (streams[0], streams[1], streams[0])):
        assert all(torch.equal(a, b) for a, b in zip(expected, train(lambda k: order[k]), strict=True))


@pytest.mark.parametrize("is_timed", [True, False])
def test_events_between_streams(streams, is_timed):
    first, second = streams
    start, end = (torch.headrace.Event(enable_timing=is_timed) for _ in range(2))
    with torch.headrace.stream(first):
        start.record()
        x = ones(300, 300)
        x = x @ x
        end.record()
    second.wait_event(end)
    with torch.headrace.stream(second):
        y = x * 2
    second.synchronize()
    for query in (start.query, end.query, first.query, second.query):
        wait_for(query)  # a first query may place a mark
    if is_timed:
        assert start.elapsed_time(end) >= 0
    assert y[7, 7].item() == 600


def test_work_keeps_tensors_that_are_dropped(streams):
    first, second = streams
    results = []
    for i in range(20):
        with torch.headrace.stream(first):
            x = torch.full((4096,), float(i), device=DEVICE)
        with torch.headrace.stream(second):
            results.append(x + 1)
        x.record_stream(second)
        del x
        with torch.headrace.stream(first):
            torch.full((4096,), -1.0, device=DEVICE)
    gc.collect()
    assert [r.cpu().unique().tolist() for r in results] == [[i + 1.0] for i in range(20)]


@pytest.mark.skipif(DRIVER != "cpu", reason="a GPU has one queue")
def test_the_default_stream_does_not_wait_for_another_one(streams):
    a, x = torch.randn(1500, 1500).to(DEVICE) / 1500, ones(8)
    (x + 1).sum().item()

    def overlaps():
        with torch.headrace.stream(streams[0]):
            b = a
            for _ in range(20):
                b = b @ a
        streams[0].query()  # commits
        assert (x + 1).sum().item() == 16
        is_done = streams[0].query()
        with torch.headrace.stream(streams[0]):
            assert b.isfinite().all().item()
        return not is_done

    assert any(overlaps() for _ in range(10))  # a busy machine may hold up the short work


def test_an_error_stays_in_its_stream(streams):
    first, second = streams
    with torch.headrace.stream(second):
        good = ones(4) * 2
    with torch.headrace.stream(first):
        bad = ones(4)[torch.tensor([9], device=DEVICE)]
    second.synchronize()
    with torch.headrace.stream(second):
        assert (good + 1).cpu().tolist() == [3.0] * 4
    with pytest.raises(IndexError):
        first.synchronize()
    with torch.headrace.stream(second), pytest.raises(IndexError):
        (bad + good[0]).cpu()
    with torch.headrace.stream(first):
        assert (good * 2).cpu().tolist() == [4.0] * 4


def test_synchronize_waits_for_all_streams(streams):
    with torch.headrace.stream(streams[0]):
        bad = ones(4)[torch.tensor([9], device=DEVICE)]
    with pytest.raises(IndexError):
        torch.headrace.synchronize()
    torch.headrace.synchronize()
    assert bad.shape == (1,)


def test_each_thread_has_its_current_stream(streams):
    x, results, seen = torch.randn(16, 16).to(DEVICE), [None, None], []

    def work(i):
        with torch.headrace.stream(streams[i]):
            y = x
            for k in range(100):
                y = (y @ x).tanh() + i
                if k % 40 == 7:
                    y.sum().item()
            seen.append(torch.headrace.current_stream() == streams[i])
            results[i] = y

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True, True]
    assert torch.headrace.current_stream() == torch.headrace.default_stream()
    for i in range(2):
        y = x
        for _ in range(100):
            y = (y @ x).tanh() + i
        assert torch.equal(results[i].cpu(), y.cpu())


def test_a_compiled_function_and_a_graph_in_another_stream(streams):
    first, second = streams
    function = torch.compile(lambda a: (a * 2).sin() + 1, backend="headrace")
    with torch.headrace.stream(first):
        x = ones(32) * 0.25
    with torch.headrace.stream(second):
        y = function(x)
    assert torch.allclose(y.cpu(), torch.full((32,), 0.5).sin() + 1)
    graph = torch.headrace.Graph()
    with torch.headrace.graph(graph, stream=first):
        x.add_(y)
    with torch.headrace.stream(second):
        graph.replay()
        graph.replay()
    assert torch.allclose(x.cpu(), 0.25 + 2 * (torch.full((32,), 0.5).sin() + 1))


def test_modes_hold_for_all_streams(streams):
    try:
        torch.headrace.set_mode("strict")
        with torch.headrace.stream(streams[0]), pytest.raises(IndexError):
            ones(4)[torch.tensor([9], device=DEVICE)]
    finally:
        torch.headrace.set_mode("fuse")
    with torch.headrace.stream(streams[0]):
        assert (ones(3) + 1).cpu().tolist() == [2.0] * 3


def test_streams_are_given_out_in_turn():
    made = [torch.headrace.Stream() for _ in range(64)]
    assert len({stream.stream_id for stream in made}) == 32
    assert all(stream != torch.headrace.default_stream() for stream in made)


def test_a_stream_that_does_not_exist_is_refused(streams):
    made, event = torch.headrace.Stream, streams[0].record_event()
    for number in (33, 77, -1):
        missing = made(stream_id=number, device_index=0, device_type=streams[0].device_type)
        for use in (
            lambda: torch.headrace.set_stream(missing),
            lambda: torch.headrace.Event(enable_timing=True).record(missing),
            missing.record_event,
            missing.query,
            missing.synchronize,
            lambda: missing.wait_event(event),
            lambda: missing.wait_stream(streams[1]),
            lambda: streams[1].wait_stream(missing),
        ):
            with pytest.raises(RuntimeError, match=f"no stream {number}:"):
                use()
    assert torch.headrace.current_stream() == torch.headrace.default_stream()
