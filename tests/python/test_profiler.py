"""torch.headrace.profiler, HEADRACE_PROFILE and HEADRACE_TRACE: what they show of a program, and misuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import torch

D = "headrace"
pytestmark = pytest.mark.device_only
profiler = torch.headrace.profiler


@pytest.fixture(autouse=True)
def stopped():
    """A test that fails leaves the profiler started."""
    yield
    try:
        profiler.stop()
    except RuntimeError:
        pass


def step(x, weight):
    return torch.tanh(x @ weight).add_(1).sum()


def operands():
    torch.manual_seed(0)
    return torch.randn(16, 32).to(D), torch.randn(32, 8).to(D)


def events(tmp_path, category=None):
    profiler.export(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    return [event for event in trace["traceEvents"] if category is None or event.get("cat") == category]


def test_a_profile_has_kernels_commits_and_copies(tmp_path):
    x, weight = operands()
    with profiler.profile():
        step(x, weight).item()
    kernels = events(tmp_path, "kernel")
    names = [name for event in kernels for name in event["args"]["operation names"]]
    assert {"matmul", "tanh", "add", "sum"} <= set(names)
    assert any("f32[16,32]" in event["args"]["shapes"] for event in kernels)
    commits = events(tmp_path, "commit")
    assert len([event for event in commits if event["ph"] == "X"]) == 1
    assert {event["ph"] for event in commits} == {"X", "s", "f"}
    assert len(events(tmp_path, "copy")) == 1
    assert "headrace: copies: 1 in" in profiler.tables()


def test_programs_and_bits_are_the_same(tmp_path):
    x, weight = operands()
    plain = step(x, weight).item()
    compiles = torch.headrace.stats()["compiles"]
    with profiler.profile(mode="interval,event"):
        assert step(x, weight).item() == plain
    assert torch.headrace.stats()["compiles"] == compiles
    assert not events(tmp_path, "compile")


def test_bytes_are_those_of_the_counters(tmp_path):
    x, weight = operands()
    torch.headrace.synchronize()
    torch.headrace.reset_stats()
    with profiler.profile():
        step(x, weight).item()
    moved = sum(e["args"].get("bytes read", 0) + e["args"].get("bytes written", 0) for e in events(tmp_path, "kernel"))
    assert moved == torch.headrace.stats()["bytes_moved"]


def test_work_from_before_is_not_in_it_and_pending_work_is(tmp_path):
    x, weight = operands()
    torch.headrace.synchronize()
    before = torch.sigmoid(x)
    profiler.start()
    y = torch.tanh(x)
    profiler.stop()
    after = torch.exp(x)
    torch.headrace.synchronize()
    names = [name for event in events(tmp_path, "kernel") for name in event["args"]["operation names"]]
    assert names == ["tanh"]
    del before, y, after


def test_each_operation_is_a_point_in_mode_event(tmp_path):
    x, weight = operands()
    with profiler.profile(mode="event"):
        y = torch.tanh(x)
    assert [event["name"] for event in events(tmp_path, "operation")] == ["record tanh"]
    del y


def test_operations_that_nobody_needs_are_named(tmp_path):
    x, weight = operands()
    with profiler.profile():
        y = torch.tanh(x)
        torch.exp(x)
    (dropped,) = events(tmp_path, "dropped")
    assert dropped["args"]["operation names"] == ["exp"]
    del y


def test_wait_until_completed_runs_each_operation_at_once(tmp_path):
    x, weight = operands()
    with profiler.profile(wait_until_completed=True):
        assert torch.headrace.get_mode() == "strict"
        step(x, weight)
    assert torch.headrace.get_mode() == "fuse"
    assert len([event for event in events(tmp_path, "commit") if event["ph"] == "X"]) >= 4


def test_fallbacks_are_recorded_with_their_time(tmp_path):
    library = torch.library.Library("headrace_profiled", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    try:
        torch.headrace.set_fallback("allow")
        with profiler.profile():
            y = torch.ops.headrace_profiled.twice(torch.ones(3, device=D))
        assert y.tolist() == [2, 2, 2]
        (event,) = events(tmp_path, "fallback")
        assert event["name"] == "fallback headrace_profiled::twice" and event["dur"] > 0
        assert "fallbacks to the host: 1 in" in profiler.tables()
    finally:
        library._destroy()


def test_misuse_is_an_error():
    with pytest.raises(RuntimeError, match="not started"):
        profiler.stop()
    with pytest.raises(ValueError, match="mode is 'kernels'"):
        profiler.start(mode="kernels")
    profiler.start()
    with pytest.raises(RuntimeError, match="started already"):
        profiler.start()
    with pytest.raises(RuntimeError, match="started already"), profiler.profile(wait_until_completed=True):
        pass
    profiler.stop()
    assert torch.headrace.get_mode() == "fuse"
    with pytest.raises(RuntimeError, match=r'can\'t write "/nowhere/trace.json"'):
        profiler.export("/nowhere/trace.json")


def test_an_exception_stops_it(tmp_path):
    x, weight = operands()
    with pytest.raises(KeyError), profiler.profile(wait_until_completed=True):
        step(x, weight).item()
        raise KeyError
    assert torch.headrace.get_mode() == "fuse"
    assert events(tmp_path, "kernel")
    with profiler.profile():
        pass
    assert not events(tmp_path, "kernel")


def test_threads_are_recorded_together(tmp_path):
    x, weight = operands()
    started = []

    def work():
        for _ in range(20):
            step(x, weight).item()
        try:
            profiler.start()
        except RuntimeError as error:
            started.append(str(error))

    with profiler.profile():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(started) == 2 and all("started already" in text for text in started)
    assert len([event for event in events(tmp_path, "copy") if event["name"] == "copy out"]) == 40


def test_a_forked_child_cannot_profile():
    profiler.start()
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            profiler.stop()
        except RuntimeError as error:
            outcome = 0 if "forked process" in str(error) else 2
        os._exit(outcome)
    assert os.waitpid(child, 0)[1] == 0
    profiler.stop()


def run_script(script, **settings):
    names = {**os.environ, **settings}
    return subprocess.run([sys.executable, "-c", script], env=names, capture_output=True, text=True, timeout=120)


SCRIPT = "import torch; x = torch.ones(64, device='headrace'); print(torch.tanh(x).sum().item())\n"


def test_the_environment_requests_tables_and_a_timeline(tmp_path):
    path = tmp_path / "trace.json"
    done = run_script(SCRIPT, HEADRACE_PROFILE="all", HEADRACE_TRACE=str(path))
    assert done.returncode == 0, done.stderr
    for head in ("headrace: operations: ", "headrace: copies: ", "headrace: fallbacks to the host: 0 in"):
        assert done.stderr.count(head) == 1
    assert json.loads(path.read_text())["traceEvents"]


def test_an_interrupt_prints_the_tables_once():
    done = run_script(SCRIPT + "import signal; signal.raise_signal(signal.SIGINT)", HEADRACE_PROFILE="ops")
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("headrace: operations: ") == 1 and "KeyboardInterrupt" in done.stderr


def test_a_profiler_that_is_open_at_exit_does_no_harm():
    done = run_script("import torch, headrace.torch\ntorch.headrace.profiler.start()\n" + SCRIPT)
    assert done.returncode == 0 and done.stderr == "", done.stderr


# ---- torch.profiler

CPU, DEVICE_ACTIVITY = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1
TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
needs_device_events = pytest.mark.skipif(TORCH < (2, 12), reason="this torch has no place for a device's profiler")


def torch_profile(body, activities=(CPU, DEVICE_ACTIVITY)):
    with torch.profiler.profile(activities=list(activities)) as profile:
        body()
    return profile


def chrome_events(profile, tmp_path):
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    return json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@needs_device_events
def test_torch_profiler_has_kernels_copies_and_commits(tmp_path):
    x, weight = operands()
    step(x, weight).item()
    profile = torch_profile(lambda: step(x, weight).item())
    found = chrome_events(profile, tmp_path)
    kernels = [event for event in found if event.get("cat") == "kernel"]
    names = {name for event in kernels for name in event["args"]["operations"].split(", ")}
    assert {"matmul", "tanh", "add", "sum"} <= names
    assert all(event["args"]["External id"] > 0 for event in kernels)
    assert [event["name"] for event in found if event.get("cat") == "gpu_memcpy"] == ["Memcpy DtoH"]
    host = {event["name"] for event in found if event.get("cat") == "privateuse1_runtime"}
    assert host == {"commit: a value is needed", "headrace: arrow start", "headrace: arrow end"}


@needs_device_events
def test_torch_profiler_has_arrows_from_operators_to_commits_to_kernels(tmp_path):
    x, weight = operands()
    step(x, weight).item()
    found = chrome_events(torch_profile(lambda: step(x, weight).item()), tmp_path)
    arrows = {phase: {e["id"]: e for e in found if e.get("ph") == phase and e["cat"] == "ac2g"} for phase in "sf"}
    (commit,) = [event for event in found if event.get("name") == "commit: a value is needed"]

    def is_inside(end, event):
        return (end["pid"], end["tid"]) == (event["pid"], event["tid"]) and (
            event["ts"] <= end["ts"] <= event["ts"] + event["dur"]
        )

    for kernel in [event for event in found if event.get("cat") == "kernel"]:
        (arrow,) = [e["id"] for e in arrows["f"].values() if e["pid"] == kernel["pid"] and e["ts"] == kernel["ts"]]
        assert is_inside(arrows["s"][arrow], commit)
        number = kernel["args"]["External id"]
        (operator,) = [e for e in found if e.get("cat") == "cpu_op" and e["args"].get("External id") == number]
        arrow = next(e["id"] for e in arrows["s"].values() if e["ts"] == operator["ts"])
        assert is_inside(arrows["s"][arrow], operator) and is_inside(arrows["f"][arrow], commit)


@needs_device_events
def test_all_ends_of_arrows_are_among_torchs_events_with_their_operators(tmp_path):
    x, weight = operands()
    step(x, weight).item()
    profile = torch_profile(lambda: step(x, weight).item())
    found = chrome_events(profile, tmp_path)
    ends = [event for event in found if event.get("name", "").startswith("headrace: arrow")]
    assert len([event for event in profile.events() if event.name.startswith("headrace: arrow")]) == len(ends) > 0
    operators = {event["args"]["External id"] for event in found if event.get("cat") == "cpu_op"}
    assert {event["args"]["External id"] for event in ends} <= operators
    kernels = {event["name"] for event in found if event.get("cat") == "kernel"}
    assert {event["args"]["kernel"] for event in ends} == kernels


@needs_device_events
@pytest.mark.skipif(not hasattr(torch.profiler.profiler, "_parse_activities"), reason="this torch has no choice")
@pytest.mark.parametrize(
    "names, categories",
    [
        (["GPU_MEMCPY"], {"gpu_memcpy"}),
        (["CONCURRENT_KERNEL"], {"kernel"}),
        (["GPU_MEMCPY", "PRIVATEUSE1_RUNTIME"], {"gpu_memcpy", "privateuse1_runtime"}),
        ([], set()),
    ],
)
def test_torch_profiler_has_the_activities_that_are_chosen(tmp_path, names, categories):
    x, weight = operands()
    step(x, weight).item()
    profile = torch_profile(lambda: step(x, weight).item(), activities=[{DEVICE_ACTIVITY: names}])
    of_device = {"gpu_memcpy", "kernel", "privateuse1_runtime"}
    assert {event.get("cat") for event in chrome_events(profile, tmp_path)} & of_device == categories


def test_a_kernel_has_its_share_of_the_bandwidth(tmp_path):
    x = torch.ones(1 << 20, device=D)
    torch.headrace.synchronize()
    with profiler.profile():
        y = x + 1
    (kernel,) = events(tmp_path, "kernel")
    share = kernel["args"]["% of bandwidth"]
    assert 0 < share < 10000 and (share > 100) == (kernel["args"]["GB/s"] > kernel["args"]["GB/s"] / share * 100)
    del y


# ---- the format of protocol buffers


def fields(data):
    """The fields of a message: number and value, of which messages and strings are bytes."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        else:
            size = 8 if tag & 7 == 1 else varint()
            value = data[at : at + size]
            assert len(value) == size
            at += size
        found.append((tag >> 3, value))
    return found


TIMESTAMP, TRACK_EVENT, DESCRIPTOR = 8, 11, 60  # of Perfetto's TracePacket
NAME, TYPE, TRACK, FLOW, LAST_FLOW = 23, 9, 11, 47, 48  # of its TrackEvent


def test_a_timeline_in_perfettos_format_has_the_same_events(tmp_path):
    x, weight = operands()
    with profiler.profile(mode="event"):
        step(x, weight).item()
    json_events = events(tmp_path)
    profiler.export(tmp_path / "trace.pftrace")
    packets = [dict(fields(packet)) for _, packet in fields((tmp_path / "trace.pftrace").read_bytes())]
    found = [fields(packet[TRACK_EVENT]) for packet in packets if TRACK_EVENT in packet]
    names = sorted(value.decode() for event in found for field, value in event if field == NAME)
    assert names == sorted(event["name"] for event in json_events if event["ph"] in "Xi")
    assert sum((TYPE, 1) in event for event in found) == sum((TYPE, 2) in event for event in found)
    described = {dict(fields(packet[DESCRIPTOR]))[1] for packet in packets if DESCRIPTOR in packet}
    assert {value for event in found for field, value in event if field == TRACK} <= described
    flows = {kind: sorted(v for event in found for field, v in event if field == kind) for kind in (FLOW, LAST_FLOW)}
    assert flows[FLOW] == flows[LAST_FLOW]
    arrows = sorted(event["id"] for event in json_events if event["ph"] == "s")
    assert [int.from_bytes(number, "little") for number in flows[FLOW]] == arrows
    assert len(arrows) > len([event for event in json_events if event.get("cat") == "kernel"]) > 0


# ---- what the tools say of one step


def launches_of_table(text):
    head = next(line for line in text.splitlines() if "headrace: operations: " in line)
    return int(head.split(": ")[2].split()[0]), float(head.split(" launches in ")[1].split()[0])


def test_timeline_and_table_agree_and_kernels_fill_the_runs(tmp_path):
    torch.manual_seed(0)
    x, weight = torch.randn(512, 512).to(D), torch.randn(512, 512).to(D)
    for _ in range(3):  # compiled, and with memory
        step(x, weight).item()
    with profiler.profile():
        for _ in range(20):
            step(x, weight).item()
    kernels, runs = events(tmp_path, "kernel"), events(tmp_path, "run")
    in_kernels, in_runs = (sum(event["dur"] for event in part) for part in (kernels, runs))
    assert in_kernels == pytest.approx(in_runs, rel=0.05)
    launches, total_ms = launches_of_table(profiler.tables())
    assert launches == len(kernels) and total_ms == pytest.approx(in_kernels / 1000, abs=0.001)


@needs_device_events
def test_torch_profiler_counts_a_kernel_once(tmp_path):
    x, weight = operands()
    step(x, weight).item()
    profile = torch_profile(lambda: step(x, weight).item())
    events = chrome_events(profile, tmp_path)
    on_device = sum(e["dur"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy"))
    of_kernels = sum(e.self_device_time_total for e in profile.events() if e.device_type != CPU_TYPE)
    of_operators = sum(kernel.duration for e in profile.events() for kernel in e.kernels)
    assert of_kernels == pytest.approx(on_device, rel=0.01)
    assert of_operators == pytest.approx(on_device, rel=0.01)


CPU_TYPE = torch.autograd.DeviceType.CPU


@needs_device_events
def test_a_fused_kernel_belongs_to_the_operator_that_ends_it():
    x, _ = operands()
    torch.headrace.synchronize()

    def body():
        y = torch.tanh(torch.exp(x))
        torch.headrace.synchronize()
        del y

    profile = torch_profile(body)
    owners = {event.name: len(event.kernels) for event in profile.events() if event.kernels}
    assert owners == {"aten::tanh": 1}


def test_torch_profiler_changes_no_program():
    x, weight = operands()
    plain = step(x, weight).item()
    compiles, results = torch.headrace.stats()["compiles"], []
    torch_profile(lambda: results.append(step(x, weight).item()))
    assert results == [plain] and torch.headrace.stats()["compiles"] == compiles


def test_a_profile_of_the_host_has_no_device_events(tmp_path):
    x, weight = operands()
    profile = torch_profile(lambda: step(x, weight).item(), activities=[CPU])
    found = chrome_events(profile, tmp_path)
    assert not [event for event in found if event.get("cat") in ("kernel", "privateuse1_runtime")]
    assert not [event for event in found if "headrace" in event.get("name", "") and event.get("ph") != "M"]


@needs_device_events
def test_torch_profiler_with_a_schedule():
    x, weight = operands()
    counts = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)

    def ready(profile):
        counts.append(sum(event.name == "Memcpy DtoH" for event in profile.events()))

    activities = [CPU, DEVICE_ACTIVITY]
    with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=ready) as profile:
        for _ in range(5):
            step(x, weight).item()
            profile.step()
    assert counts == [2]


def test_the_legacy_profiler_is_quiet_and_has_times(capfd):
    x, weight = operands()
    with torch.autograd.profiler.profile(use_device=D) as profile:
        step(x, weight).item()
    assert capfd.readouterr().err.count("\n") < 5
    assert sum(event.device_time_total for event in profile.key_averages()) > 0


@pytest.mark.skipif(not torch.profiler.itt.is_available(), reason="this torch has no ITT")
def test_marks_of_operators_for_itt():
    with torch.autograd.profiler.emit_itt():
        result = torch.ones(3, device="headrace") * 2
        assert result.sum().item() == 6


COLLECTOR = r"""
#include <stdio.h>
typedef void (*function)(void);
typedef struct { unsigned long size; int (*get)(int, function ***, unsigned *); } callbacks;
static int push(const char *name) { printf("push %s\n", name); fflush(stdout); return 0; }
static int pop(void) { puts("pop"); fflush(stdout); return 0; }
int InitializeInjectionNvtx2(const void *(*get_table)(unsigned)) {
  function **slots; unsigned count = 0;
  if (!((const callbacks *)get_table(1))->get(1, &slots, &count) || count <= 11) return 0;
  *slots[9] = (function)push; *slots[11] = (function)pop; return 1; }
"""
MARKED = """
import torch, warnings
warnings.simplefilter("always")
x = torch.ones(3, device="headrace", requires_grad=True)
with torch.autograd.profiler.emit_nvtx(record_shapes=True):
    x.mul(2).sum().backward()
print("after")
x.mul(2)
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch's own NVTX is there")
def test_marks_of_operators_for_nvtx(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "collector.c", tmp_path / "collector.so"
    source.write_text(COLLECTOR)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)

    def run(**variables):
        command = [sys.executable, "-c", MARKED]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)

    lines, _, after = run(NVTX_INJECTION64_PATH=str(library)).stdout.partition("after\n")
    assert "push aten::mul" in lines and "sizes = [[3], []]" in lines and "push MulBackward0" in lines, lines
    assert lines.count("push ") == lines.count("pop\n")
    assert "aten::" not in after
    alone = run()
    assert "push" not in alone.stdout and alone.stderr.count("NVTX_INJECTION64_PATH") == 1, alone.stderr
