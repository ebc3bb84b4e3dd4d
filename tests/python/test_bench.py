"""The benchmark runs and writes correct files. Speed itself is not tested."""

import json
import subprocess
import sys

import pytest
import torch
from support import DEVICE, ROOT

BENCH = ROOT / "bench" / "run.py"


def run(*arguments):
    command = [sys.executable, str(BENCH), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_two_cases(tmp_path):
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    options = ["--rounds", 2, "--seconds", 0.05, "--threads", 1, "--device", DEVICE.type, "--sides", "torch,device"]
    done = run("--cases", "mlp-train-64,chain-6*", *options, *files)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert [result["name"] for result in report["results"]] == ["mlp-train-64", "chain-64"]
    for result in report["results"]:
        for side in (result["torch"], result["device"]):
            assert 0 < side["low_seconds"] <= side["median_seconds"] <= side["high_seconds"]
            assert side["first_seconds"] > 0
        assert result["ratio"] > 0
        assert "compiled" not in result
    trained = report["results"][0]
    for side in ("torch", "device"):
        alone = trained[side]["alone"]
        assert alone["growth_bytes"] > 1 << 20
        assert 0 < alone["first_seconds"] < 60 and 0 <= alone["settled_seconds"] < 60
    assert report["machine"]["cores"] >= 1 and report["threads"] == 1
    table = (tmp_path / "out.md").read_text()
    assert "| Softshrink MLP, train, batch 64 |" in table
    assert "geometric mean" in table and "peak memory" in table
    if DEVICE.type == "headrace":
        if torch.headrace.get_device_properties().is_host:  # others begin before all is recorded
            assert trained["device"]["stats_per_sample"]["commits"] == 1
        assert trained["device"]["stats_per_sample"]["compiles"] == 0


def test_compiled_side(tmp_path):
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    options = ["--rounds", 2, "--seconds", 0.05, "--threads", 1, "--device", DEVICE.type, "--not-alone"]
    done = run("--cases", "mlp-infer-1,chain-64,add-4", *options, *files)
    assert done.returncode == 0, done.stderr
    network, chain, addition = json.loads((tmp_path / "out.json").read_text())["results"]
    assert network["compiled_ratio"] > 0
    assert network["compiled"]["stats_per_sample"]["graph_runs"] == 100
    assert network["compiled"]["stats_per_sample"]["graph_eager_runs"] == 0
    assert chain["compiled"]["stats_per_sample"]["graph_runs"] == 200
    assert "compiled" not in addition
    assert "compiled | speed-up" in (tmp_path / "out.md").read_text()


def test_an_engine_that_has_not_all_operators_is_left_out(tmp_path):
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    options = ["--rounds", 1, "--seconds", 0.05, "--threads", 1, "--device", DEVICE.type, "--not-alone"]
    done = run("--cases", "mlp-infer-1", "--sides", "torch,device,openvino", *options, *files)
    assert done.returncode == 0, done.stderr
    assert "no OpenVINO beside it" in done.stderr  # it has no softshrink, and need not be installed
    assert "openvino" not in json.loads((tmp_path / "out.json").read_text())["results"][0]


def test_an_engine_with_fewer_digits_is_refused():
    sys.path.insert(0, str(BENCH.parent))
    import engines

    model, batch = torch.nn.Linear(4, 3).requires_grad_(False), torch.rand(2, 4)
    exact = engines.ExportedAtFirstCall(model, lambda model, _: lambda array: model(torch.from_numpy(array)).numpy())
    assert exact(batch).shape == (2, 3)
    rounding = lambda model, _: lambda array: model(torch.from_numpy(array)).bfloat16().float().numpy()  # noqa: E731
    with pytest.raises(AssertionError, match="not close"):
        engines.ExportedAtFirstCall(model, rounding)(batch)


def test_settling():
    sys.path.insert(0, str(BENCH.parent))
    from alone import seconds_to_settle

    ends = [0.1 * (k + 1) for k in range(40)]
    steady = [(end, 0.1) for end in ends]
    assert seconds_to_settle(steady) == 0
    slow_steps = [(end, 0.3 if k in (20, 33) else 0.1) for k, end in enumerate(ends)]
    assert seconds_to_settle(slow_steps) == 0
    slow_start = [(end, 0.2 if k < 12 else 0.1) for k, end in enumerate(ends)]
    assert 0.9 <= seconds_to_settle(slow_start) <= 1.3
    assert seconds_to_settle(steady[:2]) == 0


def test_readme_section():
    """docs/benchmarks.md gets the whole report, the README its five rows and the mean of all."""
    sys.path.insert(0, str(BENCH.parent))
    import cases
    import readme

    side = {"median_seconds": 0.02}
    read = {"median_seconds": 0.0085, "bytes": 340_000_000}
    result = {"name": "a", "title": "A, infer", "torch": side, "device": {"median_seconds": 0.01}, "ratio": 2.0}
    result["counts_in_mean"] = True
    written = {
        "date": "2026-01-02",
        "commit": "",
        "device": "headrace",
        "threads": 2,
        "machine": {"cpu": "C", "cores": 2, "vectors": [], "memory_gib": 1, "system": "S", "torch": "1", "python": "3"},
        "geometric_means": {"ratio": 2.0},
        "results": [result | {"row_product": read}],
    }
    text = readme.section(written)
    assert "| A, infer | 20 ms | 10 ms | 2.00x |" in text
    assert "(40 GB/s)" in text and "1.5 ms: 11.5 ms" in text
    written["results"] = [result | {"name": name, "title": name} for name in ("zebra", *readme.README_CASES)]
    short = readme.short_section(written)
    rows = [line.split(" | ")[0] for line in short.splitlines() if line.startswith("| ")]
    assert rows == ["| case", *(f"| {name}" for name in readme.README_CASES)]
    assert "mean of all 6 cases: 2.00x (headrace)." in short and "zebra" not in short
    assert set(readme.README_CASES) <= {case.name for case in cases.CASES}


def test_names():
    listed = run("--list")
    assert listed.returncode == 0
    assert "resnet50-train-2" in listed.stdout
    unknown = run("--cases", "nothing", "--device", DEVICE.type)
    assert unknown.returncode != 0
    assert "no case is called nothing" in unknown.stderr


def test_kernels_add_up():
    sys.path.insert(0, str(BENCH.parent))
    import kernels

    text = """headrace: this machine reads 64 GB/s, 2 threads, 493 GFLOP/s f32
headrace:     100.0 us     2.000 MB    20.0 GB/s   22 %    65.4 GFLOP/s   13 %  matmul 64x32 * 32x16 by onednn, + bias
headrace:       2.0 us     0.006 MB    32.2 GB/s  relu, 32x16
headrace:       4.0 us     0.006 MB    32.2 GB/s   50 %  relu, 32x16
something else
"""
    step = kernels.read_step(text)
    assert [line[0] for line in step] == ["matmul 64x32 * 32x16 by onednn, + bias", "relu, 32x16", "relu, 32x16"]
    slower = [(name, 3 * us, mb, operations) for name, us, mb, operations in step]
    rows = kernels.add_up([step, step, slower, step[:1]])
    assert [row[:3] for row in rows] == [(step[0][0], 1, 100.0), ("relu, 32x16", 2, 6.0)]
    assert rows[0][4] == pytest.approx(6.54) and rows[1][3] == pytest.approx(0.012)


def test_operators_speed(tmp_path):
    """Entries are grown or made by name, both sides run, and the page lists timed and untimed ones."""
    pytest.importorskip("expecttest")  # which torch's own test data needs
    written, page = tmp_path / "ops.json", tmp_path / "ops.md"
    asked = [
        "--only",
        "add,linalg.inv,cross,empty_like,transpose",
        "--sizes",
        "1K,100K",
        "--seconds",
        "0.01",
        "--device",
        DEVICE.type,
    ]
    command = [sys.executable, ROOT / "bench" / "ops.py", *asked, "--json", written, "--markdown", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {(row["name"], row["key"]): row for row in json.loads(written.read_text())["rows"]}
    for name in ("add", "linalg.inv", "cross"):
        for key in (
            "1K float32 contiguous forward",
            "100K float32 strided forward",
            "100K float32 contiguous backward",
        ):
            row = rows[name, key]
            if "torch more than" in row.get("reason", ""):  # a busy machine
                continue
            assert row["outcome"] == "timed", row
            assert row["ratio"] > 0 and row["torch_us"] > 0 and row["headrace_us"] > 0
    assert rows["transpose", "1K float32 contiguous forward"]["outcome"] == "timed"
    assert rows["transpose", "100K float32 contiguous forward"]["outcome"] == "none"  # a view
    text = page.read_text()
    assert "| `linalg.inv` |" in text and "- makes no values: `empty_like`" in text

    again = ["--only", "cross", "--update", *asked[2:], "--json", written, "--markdown", page]
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "ops.py", *again], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    updated = {(row["name"], row["key"]): row for row in json.loads(written.read_text())["rows"]}
    assert updated.keys() == rows.keys()
    assert all((updated[key] == rows[key]) == (key[0] != "cross") for key in rows)
    assert page.read_text() != text


def test_models_of_files_answer_as_torch_does(tmp_path):
    pytest.importorskip("onnx")
    command = [sys.executable, ROOT / "bench" / "models.py", "--folder", tmp_path, "--json", tmp_path / "x.json"]
    options = ["--cases", "cnn-1", "--sides", "headrace,headrace onnx,torch cpu", "--rounds", "1", "--seconds", "0.01"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "x.json").read_text())["cnn-1"]
    assert list(rows) == ["headrace", "headrace onnx", "torch cpu"] and "| CNN b1 | headrace |" in done.stdout
    assert all(row["difference"] < 1e-4 and 0 < row["wall"] and 0 < row["open"] < row["first"] for row in rows.values())


def test_profilers_are_compared():
    script = ROOT / "bench" / "profiled.py"
    command = [sys.executable, str(script), "--rounds", "1", "--steps", "2", "--batch", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" us a step ") == 4 and "of the host alone" in done.stdout


def test_array_networks(tmp_path):
    """All sides but MLX's have the same answers and learn alike, and table and pictures are written."""
    command = [sys.executable, str(ROOT / "bench" / "array_networks.py"), "--folder", str(tmp_path), "--rounds", "1"]
    sides = ["arrays", "arrays compiled", "torch cpu", "torch headrace"]
    options = ["--sides", ",".join(sides), "--seconds", "0.01", "--cases", "mlp-train-64,cnn-infer-1", "--images", "3"]
    done = subprocess.run([*command, *options, "--epochs", "2"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results.json").read_text())
    assert set(report["seconds"]) == {"mlp-train-64", "cnn-infer-1", "one by one"}
    assert all(row.keys() == set(sides) and min(row.values()) > 0 for row in report["seconds"].values())
    assert max(report["differences"].values()) < 1e-3
    epochs = [report["learned"][side]["epochs"] for side in sides]
    losses = [rows[min(map(len, epochs)) - 1]["loss"] for rows in epochs]  # a slow side has fewer
    assert max(losses) < 2.25 and max(losses) - min(losses) < 0.4  # 2.3 at first; dropout differs
    assert "| CNN, infer, batch 1, ms |" in (tmp_path / "table.md").read_text()
    assert "Not measured: mlx, mlx compiled." in done.stdout
    assert (tmp_path / "learning.png").stat().st_size > 10000 and (tmp_path / "machine.png").exists()
