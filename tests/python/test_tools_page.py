"""bench/tools.py, timeline.py and samples.py: the page of all tools, its picture, and names of generated code."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import samples  # noqa: E402
import timeline  # noqa: E402

pytestmark = pytest.mark.device_only
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_page_has_a_part_for_each_tool(tmp_path):
    done = run(ROOT / "bench" / "tools.py", "--networks", "mlp", "--seconds", 0.2, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:5]] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    page = (tmp_path / "index.html").read_text()
    assert page.count("<h2>") == 5 and "headrace::adam" in page and "<svg" in page
    assert all(f"headrace: {table}" in page for table in ("operations: ", "copies: ", "fallbacks to the host: "))
    assert "before: torch.where" in page and "after: torch.headrace.elementwise" in page
    assert ("of them with a name" in page) == samples.is_permitted()


def trace_of(*events):
    names = [{"ph": "M", "tid": t, "name": "thread_name", "args": {"name": n}} for t, n in ((1, "host"), (2, "cpu"))]
    made = [
        {"ph": "X", "tid": tid, "cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"run": run}}
        for tid, cat, name, ts, dur, run in events
    ]
    return {"traceEvents": names + made}


def test_the_picture_has_a_box_for_each_event_of_the_last_program():
    trace = trace_of(
        (1, "commit", "old", 0, 5, "1"), (2, "kernel", "old", 1, 5, "1"),
        (1, "commit", "new", 10, 5, "2"), (2, "kernel", "a<b", 12, 4, "2"), (2, "kernel", "c", 16, 2, "2"),
    )  # fmt: skip
    root = xml.etree.ElementTree.fromstring(timeline.picture(trace))
    titles = [box.find(f"{SVG}title").text for box in root.findall(f"{SVG}g")]
    assert sorted(title.split(":")[0] for title in titles) == ["a<b", "c", "new"]
    assert len(root.findall(f"{SVG}path")) == 2
    both = xml.etree.ElementTree.fromstring(timeline.picture(trace, runs=2))
    assert len(both.findall(f"{SVG}g")) == 5


def test_a_timeline_without_events_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no event"):
        timeline.picture(json.loads('{"traceEvents": []}'))


def test_generated_code_is_recognized():
    names = ("/c/eef3ce68518c9ef2-af2fb074e131927b490070e355963b1d.so", "/tmp/x/kernels.so (deleted)", "/tmp/perf-7.map")
    assert all(samples.GENERATED.search(name) for name in names)
    assert not any(samples.GENERATED.search(name) for name in ("/x/libheadrace.so.0", "[kernel.kallsyms]"))


def test_perf_names_generated_code_in_a_first_process_and_a_later_one():
    if not samples.is_permitted():
        pytest.skip("perf is not installed or not permitted")
    done = run(ROOT / "bench" / "samples.py", "--seconds", 1)
    shares = re.findall(r"^(first|later) process: (\d+) samples in generated code, ([\d.]+) %", done.stdout, re.M)
    assert [which for which, *_ in shares] == ["first", "later"], done.stderr
    assert all(int(count) > 20 and float(share) >= 99 for _, count, share in shares), done.stdout


def test_the_cost_of_probes_needs_two_builds():
    done = run(ROOT / "bench" / "probe_cost.py", "libheadrace.so.0")
    assert done.returncode == 2 and "two libraries are needed" in done.stderr
