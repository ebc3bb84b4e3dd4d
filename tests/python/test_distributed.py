"""The backend of torch.distributed: two processes of this machine (distributed_ranks.py has what they do)."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import pytest
import torch

RANKS = pathlib.Path(__file__).with_name("distributed_ranks.py")

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(test, expected=(0, 0), program=RANKS, **environment):
    """Runs a test of distributed_ranks.py, or another program, one rank for each exit code; returns what they print."""
    port = str(free_port())
    ranks = []
    for rank in range(len(expected)):
        variables = {
            **os.environ,
            **environment,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(len(expected)),
            "LOCAL_WORLD_SIZE": str(len(expected)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(program), test],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    run.processes = {str(rank.pid) for rank in ranks}
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    codes = tuple(rank.returncode for rank in ranks)
    assert codes == expected, f"exit codes {codes}\n" + "\n".join(outputs)
    return outputs


def segments():
    """Those that the last run has left: another worker of these tests has its own."""
    folder = pathlib.Path("/dev/shm")
    names = [path.name for path in folder.glob(f"headrace-{os.getuid()}-*")] if folder.is_dir() else []
    return {name for name in names if name.split("-")[2] in run.processes}


@pytest.mark.parametrize("transport", ["auto", "network"])
def test_collectives_equal_gloo(transport):
    names = {"auto": "shared memory", "network": "network"}
    run("collectives", HEADRACE_TRANSPORT=transport, EXPECTED_TRANSPORT=names[transport])
    assert not segments()  # the name is gone


def test_networks_equal_one_process():
    run("networks")


@pytest.mark.parametrize(("ranks", "mode"), [(4, "fuse"), (2, "eager"), (2, "strict")])
def test_trainings_equal_one_process(ranks, mode):
    run("trainings", expected=(0,) * ranks, HEADRACE_MODE=mode)


def test_accelerate_uses_all_ranks():
    pytest.importorskip("accelerate")
    run("accelerate")


def test_sharded_trainings_resume_from_checkpoints(tmp_path):
    program = RANKS.with_name("checkpoint_ranks.py")
    run("save", (0, 0), program, CHECKPOINT=str(tmp_path))
    for ranks in (1, 4):
        run("resume", (0,) * ranks, program, CHECKPOINT=str(tmp_path))


@pytest.fixture(scope="module")
def nccl_stub(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    stub = RANKS.parents[1] / "stubs" / "nccl.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(stub)], check=True)
    return str(library)


def run_differing(test, transport, **environment):
    name = {"auto": "shared memory", "network": "network", "nccl": "nccl"}[transport]
    program = RANKS.with_name("differing_ranks.py")
    run(test, (0, 0), program, HEADRACE_TRANSPORT=transport, EXPECTED_TRANSPORT=name, **environment)


@pytest.mark.parametrize("test", ["differ", "differ_in_messages", "refuse"])
@pytest.mark.parametrize("transport", ["auto", "network"])
def test_calls_that_differ_are_errors(test, transport):
    run_differing(test, transport)


@pytest.mark.parametrize("test", ["differ", "differ_in_messages", "differ_later", "refuse"])
def test_calls_of_nccl_that_differ_are_errors(test, nccl_stub):
    run_differing(test, "nccl", HEADRACE_NCCL=nccl_stub)


@pytest.mark.parametrize("transport", ["auto", "nccl"])
def test_torch_compares_calls_in_detail(transport, nccl_stub):
    run_differing("differ_in_detail", transport, HEADRACE_NCCL=nccl_stub, TORCH_DISTRIBUTED_DEBUG="DETAIL")


def test_nccl_gets_the_calls_of_one_rank(nccl_stub, tmp_path):
    program = RANKS.with_name("nccl_rank.py")
    run("", (0,), program, HEADRACE_TRANSPORT="nccl", HEADRACE_NCCL=nccl_stub)
    outputs = run("", (1,), program, HEADRACE_TRANSPORT="nccl", HEADRACE_NCCL=str(tmp_path / "none"))
    assert "rank 0: NCCL 2 (set HEADRACE_NCCL to the library's path)" in outputs[0], outputs[0]


def test_attention_of_dtensors_stays_sharded():
    program = RANKS.parents[1] / "conformance" / "distributed.py"
    command = [sys.executable, str(program), "--only", "test_dtensor_attention"]
    subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


def test_failures_are_errors_of_all_ranks():
    run("failures", expected=(0, -signal.SIGKILL))


def test_a_rank_that_never_joins_leaves_no_segment():
    run("never_joins", expected=(0, 0))
    assert not segments()


@pytest.mark.skipif(not pathlib.Path("/dev/shm").is_dir(), reason="shared memory can't be listed")
def test_a_segment_of_a_killed_process_is_removed_later():
    run("is_killed", expected=(-signal.SIGKILL, 0))
    (left,) = segments()
    os.utime(f"/dev/shm/{left}", (0, 0))
    run("never_joins", expected=(0, 0))
    assert not pathlib.Path(f"/dev/shm/{left}").exists()


def test_the_backend_is_registered_without_a_group():
    code = "import torch; print(torch.distributed.Backend.default_device_backend_map['headrace'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "headrace"


def test_the_example_trains():
    outputs = run("", program=RANKS.parents[2] / "examples" / "ddp.py")
    assert "2 ranks, accuracy 0.9" in outputs[0] or "2 ranks, accuracy 1.0" in outputs[0], outputs[0]
