"""The benchmark runs, and its files say what they should. Speed itself is no matter for a test."""

import json
import subprocess
import sys

from support import DEVICE, ROOT

BENCH = ROOT / "bench" / "run.py"


def run(*arguments):
    command = [sys.executable, str(BENCH), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_two_cases(tmp_path):
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    options = ["--rounds", 2, "--seconds", 0.05, "--threads", 1, "--device", DEVICE.type]
    done = run("--cases", "mlp-train-64,chain-6*", *options, *files)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert [result["name"] for result in report["results"]] == ["mlp-train-64", "chain-64"]
    for result in report["results"]:
        for side in (result["torch"], result["device"]):
            assert 0 < side["low_seconds"] <= side["median_seconds"] <= side["high_seconds"]
            assert side["first_seconds"] > 0
        assert result["ratio"] > 0
    trained = report["results"][0]
    assert trained["torch"]["memory"]["growth_bytes"] > 1 << 20
    assert trained["device"]["memory"]["growth_bytes"] > 1 << 20
    assert report["machine"]["cores"] >= 1 and report["threads"] == 1
    table = (tmp_path / "out.md").read_text()
    assert "| Softshrink MLP, train, batch 64 |" in table
    assert "Geometric mean" in table
    if DEVICE.type == "headrace":
        assert trained["device_stats_per_sample"]["commits"] == 1
        assert trained["device_stats_per_sample"]["compiles"] == 0


def test_compiled_side(tmp_path):
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    options = ["--rounds", 2, "--seconds", 0.05, "--threads", 1, "--device", DEVICE.type, "--no-memory", "--compiled"]
    done = run("--cases", "mlp-infer-1,chain-64", *options, *files)
    assert done.returncode == 0, done.stderr
    network, chain = json.loads((tmp_path / "out.json").read_text())["results"]
    assert network["compiled_ratio"] > 0
    assert network["compiled"]["stats_per_sample"]["graph_runs"] == 100
    assert network["compiled"]["stats_per_sample"]["graph_eager_runs"] == 0
    assert "compiled" not in chain
    assert "compiled | ratio" in (tmp_path / "out.md").read_text()


def test_names():
    listed = run("--list")
    assert listed.returncode == 0
    assert "resnet50-train-2" in listed.stdout
    unknown = run("--cases", "nothing", "--device", DEVICE.type)
    assert unknown.returncode != 0
    assert "no case is called nothing" in unknown.stderr
