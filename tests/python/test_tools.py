"""The `headrace` command, on the example of docs: lines of a profile, and the text and picture of `explain`."""

import importlib.util
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from support import ROOT

STEP = ROOT / "docs" / "step.hr"
PLACES = ROOT.glob("build/*/bin/headrace")
TOOLS = sorted((x for x in PLACES if os.access(x, os.X_OK)), key=os.path.getmtime)  # warnings are checked without links
pytestmark = pytest.mark.skipif(not TOOLS, reason="the command is not built")

LINE = re.compile(
    r"headrace: +(?P<us>\d+\.\d) us +(?P<mb>\d+\.\d{3}) MB +(?P<gbs>\d+\.\d) GB/s +(?P<share>\d+) %"
    r"(?: +(?P<gflops>\d+\.\d) GFLOP/s +\d+ %)?  (?P<name>\S[^,]*)(?:, (?P<rest>.*))?"
)


def run(*arguments, code=0, **environment):
    """The command, in this interpreter's environment, where it finds oneDNN."""
    done = subprocess.run(
        [TOOLS[-1], *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix, "HEADRACE_DEVICE": "cpu", **environment},
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_profile_has_a_line_for_each_kernel_with_time_bytes_and_shares():
    lines = run("run", STEP, HEADRACE_DEBUG="2", HEADRACE_JIT="off").stderr.splitlines()
    machine = [
        re.fullmatch(r"headrace: this machine reads (\d+) GB/s, \d+ threads, (\d+) GFLOP/s f32", line) for line in lines
    ]
    machine = [match for match in machine if match]
    assert len(machine) == 1 and int(machine[0][1]) > 0 and int(machine[0][2]) > 0
    kernels = [match for match in map(LINE.fullmatch, lines) if match]
    update = kernels[-1]
    assert update["name"] == "sub_scaled" and update["rest"] == "32x16" and float(update["mb"]) == 0.006
    assert float(update["gbs"]) == pytest.approx(6144e-3 / float(update["us"]), rel=0.3)  # both are rounded
    # without the library the products are loops, which are no products of a library's
    for kernel in kernels:
        assert (kernel["gflops"] is None) == (" by " not in kernel["name"])


# ---- explain

# Two kernels: a sum and a ReLU that share one, and an exponential that reads the result transposed.
PROGRAM = """; argument 0 f64 1
buffer %0 4096 live
buffer %1 4096 live
buffer %2 4096 dead fresh
buffer %3 4096 dead fresh
buffer %4 4096 live fresh
%2:f32[64,16]{16,1}+0 = add(%0:f32[64,16]{16,1}+0, %1:f32[64,16]{16,1}+0)
%3:f32[64,16]{16,1}+0 = relu(%2:f32[64,16]{16,1}+0)
%4:f32[16,64]{64,1}+0 = exp(%3:f32[16,64]{1,16}+0)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "a<b>&.hr"
    path.write_text(PROGRAM)
    return path


def test_explain_names_steps_values_and_what_vanished(program):
    head, first, second = run("explain", program).stdout.split("\n\n")
    assert "3 operations became 2 steps: 0 library calls, 2 fused loops, 0 copies, 0 checks" in head
    assert "reads 12.3 KB and writes 8.2 KB" in head
    assert "1 temporaries, 4.1 KB, never get memory; the others share an arena of 4.1 KB" in head
    assert first.startswith("step 0: add_relu, 64x16 [fused loop]") and "does    add, relu" in first
    assert re.search(r"reads +%0 +f32 64x16 +4\.1 KB +from before", first)
    assert re.search(r"writes +%3 +f32 64x16 +4\.1 KB +in the arena at 0, last read by step 1", first)
    assert "keeps   1 temporary in registers: 4.1 KB" in first and "apart" not in first
    assert second.startswith("step 1: exp, 16x64 [fused loop]")
    assert "apart   needs elements of its input that are not available" in second
    assert re.search(r"reads +%3 +f32 64x16 +4\.1 KB +of step 0", second)
    assert re.search(r"writes +%4 +f32 16x64 +4\.1 KB +stays, new memory", second)


@pytest.mark.parametrize("mode", ["eager", "strict"])
def test_explain_of_unfused_modes_has_a_step_for_each_operation(program, mode):
    steps = run("explain", program, "--mode", mode).stdout.split("\n\n")[1:]
    assert [step.split(",")[0] for step in steps] == ["step 0: add", "step 1: relu", "step 2: exp"]
    assert re.search(r"reads +%2 .* of step 0", steps[1]) and re.search(r"reads +%3 .* of step 1", steps[2])


def test_explain_measures_each_step(program):
    text = run("explain", program, "--time", "5").stdout
    total = float(re.search(r"median of 5 runs: ([\d.]+) us in all steps", text)[1])
    times = [
        float(us) for us in re.findall(r"^    ([\d.]+) us, [\d.]+ % of all; .*(?:interpreted|compiled)$", text, re.M)
    ]
    assert len(times) == 2 and sum(times) == pytest.approx(total, abs=0.2)


def picture_of(tmp_path, *arguments):
    path = tmp_path / "picture.svg"
    assert run("explain", *arguments, "--svg", path).stdout == ""
    return xml.etree.ElementTree.parse(path).getroot()


def test_explain_draws_a_box_for_each_step_and_a_line_for_the_value_between(program, tmp_path):
    root = picture_of(tmp_path, program, "--time", "2")
    svg = "{http://www.w3.org/2000/svg}"
    boxes = root.findall(f"{svg}g")
    texts = [[text.text for text in box.findall(f"{svg}text")] for box in boxes]
    assert len(boxes) == 2 and "add, relu" in texts[0] and "add_relu, 64x16" in texts[0] and "exp" in texts[1]
    assert all(re.fullmatch(r"[\d.]+ us +[\d.]+ %", row[1]) for row in texts)
    assert boxes[0].find(f"{svg}title").text.startswith("step 0: add_relu")
    assert len([path for path in root.findall(f"{svg}path") if path.get("class") == "l"]) == 1
    labels = [text.text for text in root.findall(f"{svg}text")]
    assert "%3 f32 64x16  4.1 KB" in labels and "%3 of step 0" in labels and "%4 f32 16x64  4.1 KB" in labels
    assert any(label.startswith("a<b>&.hr on cpu: 3 operations") for label in labels)


def test_boxes_of_the_picture_do_not_overlap_and_hold_their_text(tmp_path):
    root = picture_of(tmp_path, STEP)
    svg = "{http://www.w3.org/2000/svg}"
    below = 0.0
    for box in root.findall(f"{svg}g"):
        frame = {name: float(box.find(f"{svg}rect").get(name)) for name in ("x", "y", "width", "height")}
        assert frame["y"] > below
        below = frame["y"] + frame["height"]
        for text in box.findall(f"{svg}text"):
            assert frame["y"] < float(text.get("y")) < below
            if "r" not in text.get("class").split():
                wide = 7.3 if text.get("class") == "b" else 6.65
                assert float(text.get("x")) + wide * len(text.text) <= frame["x"] + frame["width"]
    assert below < float(root.get("height"))


def test_explain_of_an_index_out_of_range_still_explains(tmp_path):
    path = tmp_path / "check.hr"
    path.write_text(
        "; argument 0 i64 7\n"
        "buffer %0 400 live\nbuffer %1 32 dead fresh\nbuffer %2 400 live fresh\nscalar $0 i64\n"
        "%1:i64[4]{1}+0 = copy($0)\n"
        "%2:f32[4,25]{25,1}+0 = gather(%0:f32[4,25]{25,1}+0, %1:i64[4,25]{1,0}+0) ints(0)\n"
    )
    done = run("explain", path)
    assert "the run ended early: index 7 is out of bounds" in done.stderr and "[check]" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't open"),
        ("", "no operations in it"),
        ("what is this", r"line 1|column"),
        (PROGRAM.replace("relu(", "rely("), "line 8.*expected an operation"),
        (PROGRAM[:-30], r"line 9|column"),
        (PROGRAM.replace("buffer %3 4096", "buffer %3 64"), r"%3|buffer"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "run"])
def test_files_that_are_missing_or_damaged_are_refused_by_name(tmp_path, command, text, message):
    path = tmp_path / "broken.hr"
    if text is not None:
        path.write_text(text)
    done = run(command, path, code=1)
    assert "broken.hr" in done.stderr and re.search(message, done.stderr) and done.stdout == ""


@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_folder_is_no_program(tmp_path, command):
    assert f'can\'t read "{tmp_path}": Is a directory' in run(command, tmp_path, code=1).stderr


def test_ops_that_do_not_exist_are_said_to_be_missing():
    assert 'contains "softmaxes"' in run("ops", "softmaxes", code=1).stderr
    assert "relu" in run("ops", "relu").stdout


def test_the_package_runs_the_command():
    done = subprocess.run([sys.executable, "-m", "headrace", "ops", "relu"], capture_output=True, text=True, check=True)
    assert "pointwise" in done.stdout
    done = subprocess.run([sys.executable, "-m", "headrace", "bogus"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and 'no command "bogus"' in done.stderr


def test_explain_refuses_what_it_does_not_know(program, tmp_path):
    assert "--svgg" in run("explain", program, "--svgg", "x", code=2).stderr
    assert "can't write" in run("explain", program, "--svg", tmp_path / "no" / "folder.svg", code=1).stderr
    assert "--time N" in run("explain", "--help").stdout


# ---- doctor


def doctor_environment(tmp_path):
    site = tmp_path / "lib" / "python3.99" / "site-packages" / "torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text("from typing import Optional\n__version__ = '9.8.7+cpu'\n")
    return {"VIRTUAL_ENV": str(tmp_path), "HEADRACE_CACHE": str(tmp_path / "cache")}


def test_doctor_lists_what_it_finds(tmp_path):
    onednn = [str(path) for path in (pathlib.Path(sys.prefix, "lib", "libdnnl.so.3"),) if path.exists()]
    if not onednn or shutil.which("gcc") is None:
        pytest.skip("needs oneDNN and a compiler")
    text = run("doctor", HEADRACE_ONEDNN=onednn[0], **doctor_environment(tmp_path)).stdout
    assert re.search(r"^ok +cpu +.*\d+ threads$", text, re.M)
    assert re.search(r"^ok +oneDNN +\d+\.\d+\.\d+, /.*libdnnl", text, re.M)
    assert re.search(r"^ok +compiler +/.*; a trial took \d+ ms$", text, re.M)
    assert re.search(r"^ok +cache +.*/cache/headrace-kernels: 0 files, 0\.0 MB of \d+ MB", text, re.M)
    assert re.search(rf"^ok +torch +9\.8\.7\+cpu, {tmp_path}/lib/python3\.99/site-packages$", text, re.M)
    assert text.endswith("all that is essential is here\n")


def test_doctor_names_what_is_missing_and_what_mends_it(tmp_path):
    environment = doctor_environment(tmp_path) | {"HEADRACE_CACHE": "here"}
    text = run("doctor", code=1, HEADRACE_ONEDNN="/nowhere/dnnl.so", HEADRACE_CC="/bin/false", **environment).stdout
    for thing, reason, remedy in (
        ("oneDNN", "/nowhere/dnnl.so", "pip install onednn-cpu-gomp"),
        ("compiler", "/bin/false", "pip install headrace[compiler]"),
        ("cache", "is no absolute path", "HEADRACE_CACHE=<a folder of yours>"),
    ):
        assert re.search(rf"^missing +{thing} .*{reason}.*\n +-> .*{re.escape(remedy)}", text, re.M), text
    assert text.endswith("3 missing; see the arrows above\n")


def test_doctor_has_help():
    assert "exit status" in run("doctor", "--help").stdout


COMMANDS = ("run", "convert", "inspect", "bench", "explain", "devices", "ops add", "env", "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_unknown_arguments(command):
    error = run(*command.split(), "--all", code=2).stderr
    assert 'argument "--all" is unknown' in error and f"see `headrace {command.split()[0]} --help`" in error


@pytest.mark.parametrize("command", ("run", "inspect", "bench", "explain"))
def test_commands_expect_a_file(command):
    assert run(command, code=2).stderr == f"headrace {command}: a file expected; see `headrace {command} --help`\n"


def test_version_is_that_of_the_public_header():
    header = (ROOT / "include/headrace/version.h").read_text()
    numbers = re.findall(r"^#define HR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE)
    assert run("--version").stdout == f"headrace {'.'.join(numbers)}\n"


# ---- packages

PACKAGE = ROOT / "tests/data/layer_v1.hrpkg"


def test_inspect_describes_a_package():
    lines = run("inspect", PACKAGE).stdout.splitlines()
    assert "  x                        f32[n, 20]" in lines and "  y                        f32[n, 3]" in lines
    assert "symbols n" in lines and "constants 3, 452 bytes" in lines
    assert "  matmul                   1" in lines and "  licence                  any = all" in lines
    text = run("inspect", PACKAGE, "--graph", "--verify").stdout
    assert "all hashes are right" in text and "input %x f32[n, 20]" in text
    assert "no package" in run("inspect", STEP, code=1).stderr


def test_inspect_draws_a_package(tmp_path):
    run("inspect", PACKAGE, "--svg", tmp_path / "x.svg")
    svg = xml.etree.ElementTree.parse(tmp_path / "x.svg").getroot()
    texts = [x.text for x in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"matmul", "x f32[n, 20]", "y f32[n, 3]"} <= set(texts)
    boxes = [x for x in svg.iter("{http://www.w3.org/2000/svg}rect") if "rx" in x.attrib]
    places = [tuple(float(x.attrib[name]) for name in ("x", "y", "width", "height")) for x in boxes]
    for i, (x, y, width, height) in enumerate(places):
        assert x >= 0 and y >= 0 and x + width <= float(svg.attrib["width"])
        for x2, y2, width2, height2 in places[:i]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    assert "can't be written" in run("inspect", PACKAGE, "--svg", tmp_path, code=1).stderr


def package_hash(value, data):
    """The hash in src/session/package_format.h."""
    mask = 2**64 - 1
    for at in range(0, len(data) + 1, 8):
        word = int.from_bytes(data[at : at + 8].ljust(8, b"\0"), "little")
        value = (value ^ word) * 0x9E3779B97F4A7C15 & mask
        value ^= value >> 32
        if len(data) - at <= 8:
            return (value ^ len(data) - at) * 0xFF51AFD7ED558CCD & mask


def test_inspect_prints_no_control_characters_of_notes(tmp_path):
    data = bytearray(PACKAGE.read_bytes().replace(b"any = all", b"\x1b[2J\x07 all"))
    place, size = (int.from_bytes(data[48 + 64 + at : 48 + 72 + at], "little") for at in (8, 16))
    data[48 + 64 + 24 : 48 + 96] = package_hash(0, data[place : place + size]).to_bytes(8, "little")
    data[40:48] = package_hash(package_hash(0, data[:40]), data[48 : 48 + 4 * 32]).to_bytes(8, "little")
    (tmp_path / "x.hrpkg").write_bytes(data)
    lines = run("inspect", tmp_path / "x.hrpkg").stdout.splitlines()
    assert "  licence                  ?[2J? all" in lines


def test_bench_times_each_batch():
    lines = run("bench", PACKAGE, "--batch", "1,8,0", "--seconds", "0.01").stdout.splitlines()
    assert "opened in" in lines[0] and lines[1].split()[:2] == ["batch", "first,"]
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == ["1", "8", "0"]
    for _, first, median, best, runs, peak in rows:
        assert 0 < float(best) <= float(median) and float(first) > 0 and int(runs) >= 3 and float(peak) > 1
    for wrong in ("", ",", "1,", "1,,2", "x", "1x", "-1", "99999999999", "1 2"):
        run("bench", PACKAGE, "--batch", wrong, code=2)
    run("bench", PACKAGE, "--seconds", "0", code=2)
    assert "both have sizes" in run("bench", PACKAGE, "--batch", "2", "--dim", "n=3", code=1).stderr
    assert run("bench", PACKAGE, "--dim", "n=3", "--seconds", "0.01").stdout.splitlines()[-1].split()[0] == "3"
    assert 'no symbol "m"' in run("bench", PACKAGE, "--dim", "m=1", code=1).stderr
    assert "no package" in run("bench", STEP, code=1).stderr


def test_an_artifact_of_stablehlo(tmp_path):
    """tanh(x @ x).sum() of f32[64, 64], exported by JAX 0.10.2."""
    artifact, package = ROOT / "tests/data/tanh_sum.stablehlo", tmp_path / "x.hrpkg"
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "x.npy", numpy.eye(64, dtype=numpy.float32))
    run("convert", artifact, "-o", package)
    for path in (artifact, package):
        listed = run("inspect", path).stdout
        assert "arg0                     f32[64, 64]" in listed and "tanh                     1" in listed
        result = run("run", path, "--input", tmp_path / "x.npy", "--print").stdout.splitlines()[-1].split()
        assert result[:2] == ["result0", "f32:"] and abs(float(result[2]) - 64 * math.tanh(1)) < 1e-3
        run("bench", path, "--seconds", "0.01")


def test_a_package_with_kernels(tmp_path):
    onnx = pytest.importorskip("onnx")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    nodes = [onnx.helper.make_node("Sin", ["x"], ["z"]), onnx.helper.make_node("Add", ["z", "x"], ["y"])]
    opset = [onnx.helper.make_opsetid("", 17)]
    graph = onnx.helper.make_graph(nodes, "sines", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "x.onnx")
    package, kept = tmp_path / "x.hrpkg", {"HEADRACE_CACHE": str(tmp_path / "cache")}
    run("convert", tmp_path / "x.onnx", "-o", package, "--target", "v2", "--size", "n=300000", "--minimum", "1", **kept)
    assert "bytes of kernels, which are used with --trust alone" in run("inspect", package).stdout
    for command, *options in (("run", "--dim", "n=300000"), ("bench", "--seconds", "0.01")):
        run(command, package, "--trust", *options, HEADRACE_CACHE=str(tmp_path / "other"))
    lines = run("bench", package, "--precision", "bf16", "--seconds", "0.01", **kept).stdout.splitlines()
    assert lines[-1].split()[0] == "1"
    assert "expected v2, v3, v4" in run("convert", package, "-o", package, "--target", "v9", code=1).stderr
    assert "expected v2, v3, v4" in run("convert", package, "-o", package, "--target", "sm_9x", code=1).stderr
    for wrong in (("--minimum", "3"), ("--target",), ("--size", "n")):
        run("convert", tmp_path / "x.onnx", "-o", package, *wrong, code=2)
    run("bench", package, "--precision", "f8", code=2)


@pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="the kernels are those of the GPU")
def test_a_package_with_kernels_for_a_gpu_that_is_not_there(tmp_path):
    cache = {"HEADRACE_CACHE": str(tmp_path / "cache")}
    convert = ("convert", PACKAGE, "-o", tmp_path / "x.hrpkg", "--target")
    assert "sm_91: expected sm_70" in run(*convert, "sm_91", code=1, **cache).stderr
    stubs = TOOLS[-1].parent.parent / "stubs"  # in the place of NVRTC
    if not stubs.is_dir():
        pytest.skip("the stub is not built")
    done = run(*convert, "sm_90:114", **cache, HEADRACE_CUDA_LIBS=str(stubs))
    assert "kernels are compiled for sm_90 with 114 multiprocessors" in done.stderr
    lines = run("inspect", tmp_path / "x.hrpkg").stdout
    assert re.search(r"target +sm_90:114", lines) and "bytes of kernels" in lines


ENGINE = """
__version__ = "9.9"
class SessionOptions:
    intra_op_num_threads = 0
class InferenceSession:
    def __init__(self, path, options, providers):
        assert providers == ["CPUExecutionProvider"] and options.intra_op_num_threads == 2
    def run(self, outputs, inputs):
        assert outputs is None and [(x.dtype.name, x.shape[1:]) for x in inputs.values()] == [("float32", (2,))]
        print("size", inputs["x"].size)
"""


@pytest.fixture
def sine_model(tmp_path):
    onnx = pytest.importorskip("onnx")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    nodes = [onnx.helper.make_node("Sin", ["x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "sine", ends[:1], ends[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "sine.onnx")
    return tmp_path / "sine.onnx"


def test_bench_runs_other_engines_on_the_same_sizes(tmp_path, sine_model):
    (tmp_path / "onnxruntime.py").write_text(ENGINE)
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    options = ["bench", sine_model, "--batch", "1,8", "--seconds", "0.001", "--against"]
    lines = run(*options, "onnxruntime", PYTHONPATH=path, HEADRACE_THREADS="2").stdout.splitlines()
    assert len(lines[2:4]) == 2 and lines[4].startswith("onnxruntime 9.9: opened in ")
    rows = [line.split() for line in lines[5:] if "size" not in line]
    assert [len(row) for row in rows[:2]] == [6, 6] and [row[0] for row in rows[:2]] == ["1", "8"]
    assert {line for line in lines if "size" in line} == {"size 2", "size 16"}


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_bench_names_engines_that_are_missing_and_runs_others(sine_model, engine):
    options = ["--batch", "1,8", "--seconds", "0.001", "--precision", "bf16", "--against", engine]
    lines = run("bench", sine_model, *options).stdout.splitlines()
    if importlib.util.find_spec(engine) is None:
        assert lines[4:] == [f"{engine}: not installed; `pip install {engine}` brings it"]
    else:
        assert re.match(rf"{engine} \d[\w.]+: opened in \d+\.\d+ ms", lines[4])
        assert [line.split()[0] for line in lines[5:]] == ["1", "8"]


def test_bench_refuses_wrong_engines_before_it_runs(sine_model):
    done = run("bench", sine_model, "--against", "openvino,onyx", code=1)
    assert '"onyx" is unknown; expected onnxruntime or openvino' in done.stderr and done.stdout == ""
    assert "is no ONNX model" in run("bench", PACKAGE, "--against", "openvino", code=1).stderr


def test_run_of_a_package_reads_and_writes_files(tmp_path):
    numpy = pytest.importorskip("numpy")
    x = numpy.random.default_rng(1).integers(-9, 9, (5, 20)).astype(numpy.float32)
    numpy.save(tmp_path / "x.npy", x)
    done = run("run", PACKAGE, "--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}", "--print")
    w = (numpy.arange(60) % 7 - 3).astype(numpy.float32)
    expected = numpy.maximum(x @ w.reshape(20, 3) + w[4:7], 0)
    assert numpy.array_equal(numpy.load(tmp_path / "y.npy"), expected)
    assert "count i64: 2" in done.stdout
    run("run", PACKAGE, "--input", tmp_path / "x.npy", "--output", f"y={tmp_path / 'z.npy'}")
    assert numpy.array_equal(numpy.load(tmp_path / "z.npy"), expected)
    error = run("run", PACKAGE, "--output", tmp_path / "z.npy", code=1).stderr
    assert "z.npy: the graph has 2 outputs, expected NAME=FILE" in error
    assert "best of 3" in run("run", PACKAGE, "--dim", "n=4", "--repeat", "3").stdout
    assert "best of 1" in run("run", PACKAGE, "--dim", "n=0", "--repeat", "1").stdout
    for wrong in ("n=-1", "n=", "n=2x", "n=99999999999999999999"):
        run("run", PACKAGE, "--dim", wrong, code=2)
    assert 'the graph has no symbol "m"' in run("run", PACKAGE, "--dim", "m=4", code=1).stderr
    error = run("run", PACKAGE, "--input", f"z={tmp_path / 'x.npy'}", code=1).stderr
    assert 'the graph has no input "z"' in error
    numpy.save(tmp_path / "x.npy", x[:, :7])
    error = run("run", PACKAGE, "--input", f"x={tmp_path / 'x.npy'}", code=1).stderr
    assert 'input "x" is f32[5,7], expected f32[n,20]' in error
