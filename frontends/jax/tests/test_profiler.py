"""jax.profiler: kernels in a trace, with their places in the program."""

import os
import pathlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

HERE = __file__.rsplit("/", 1)[-1]
KERNELS = "kernels and library calls"


def traced(folder, work):
    """{line: events} of the device."""
    with jax.profiler.trace(str(folder)):
        work()
    (path,) = folder.glob("**/*.xplane.pb")
    planes = [plane for plane in jax.profiler.ProfileData.from_file(str(path)).planes if "headrace" in plane.name]
    return {line.name: [(event.name, dict(event.stats), event.duration_ns, event.start_ns) for event in line.events]
            for plane in planes for line in plane.lines}


def network(x, w):
    return jnp.sum(jnp.tanh(x @ w) * 2)


def test_kernels_have_the_names_and_lines_of_the_program(tmp_path):
    x, w = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)
    step = jax.jit(jax.grad(network, argnums=1))
    step(x, w).block_until_ready()
    lines = traced(tmp_path, lambda: [step(x, w).block_until_ready() for _ in range(3)])
    products = [stats for _, stats, *_ in lines[KERNELS] if "dot_general" in stats.get("tf_op", "")]
    assert len(products) == 3 and len(lines["programs"]) == 3
    assert {stats["hlo_module"] for stats in products} == {"jit_network"}
    assert all(HERE in stats["source"] and stats["flops"] >= 2 * 64 * 32 * 16 for stats in products)
    assert "f32[64,32]" in products[0]["shapes"]
    fused = [stats for name, stats, *_ in lines[KERNELS] if "tanh" in name]
    assert all("tanh" in stats["tf_op"] and "tanh" in stats["operations"] for stats in fused) and len(fused) == 3
    starts = [start for *_, start in lines["programs"]]
    assert starts == sorted(starts) and all(duration > 0 for *_, duration, _ in lines["programs"])


def test_dumps_lines_and_explanations_have_the_names_of_the_program(tmp_path):
    program = f"""
import headrace_jax, jax, numpy as np
headrace_jax.initialize()
from test_profiler import network
x, w = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)
jax.jit(network)(x, w).block_until_ready()
"""
    paths = os.pathsep.join(filter(None, (os.path.dirname(__file__), os.environ.get("PYTHONPATH"))))
    wanted = {"PYTHONPATH": paths, "HEADRACE_DUMP": str(tmp_path), "HEADRACE_DEBUG": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | wanted, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<- jit(network)/dot_general" in done.stderr and "jit(network)/tanh" in done.stderr
    (path,) = [path for path in tmp_path.glob("*.hr") if "tanh" in path.read_text()]
    places = [line for line in path.read_text().splitlines() if line.startswith("; place")]
    assert any("jit(network)/tanh" in line and f"{HERE}:" in line for line in places)
    tool = pathlib.Path(os.environ.get("HEADRACE_JAX_LIBRARY", "///")).parents[2] / "bin/headrace"
    if tool.exists():
        steps = subprocess.run([str(tool), "explain", str(path)], capture_output=True, text=True, check=True).stdout
        assert "    of      jit(network)/dot_general" in steps and "jit(network)/tanh" in steps


def test_work_that_nobody_has_waited_for_is_in_the_trace(tmp_path):
    """In a process of its own: the end of a trace does not wait for a device on which callbacks have run."""
    program = f"""
import pathlib, headrace_jax, jax, numpy as np
headrace_jax.initialize()
from test_profiler import KERNELS, traced
double, held = jax.jit(lambda x: x * 2 + 1), []
lines = traced(pathlib.Path({str(tmp_path)!r}), lambda: held.append(double(np.ones((128, 128), np.float32))))
print([stats["hlo_module"] for _, stats, *_ in lines[KERNELS]])
"""
    paths = os.pathsep.join(filter(None, (os.path.dirname(__file__), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == ["['jit__lambda']"], done.stderr[-3000:]


def test_loops_and_inner_functions_have_places(tmp_path):
    @jax.jit
    def inner(x):
        return jnp.sin(x) * 0.5

    @jax.jit
    def loop(x):
        return jax.lax.while_loop(lambda s: jnp.max(s) > 0.01, lambda s: inner(s), jax.lax.fori_loop(0, 9, step, x))

    def step(i, x):
        return jnp.cos(x) + i

    x = np.ones((33, 65), np.float32)
    loop(x).block_until_ready()
    kernels = traced(tmp_path, lambda: loop(x).block_until_ready())[KERNELS]
    found = " ".join(stats.get("tf_op", "") for _, stats, *_ in kernels)
    assert "cos" in found and "sin" in found and "reduce_max" in found


def test_programs_that_are_gone_have_names(tmp_path):
    def work():
        jax.jit(lambda x: x - 3)(np.ones(9, np.float32)).block_until_ready()
        jax.clear_caches()

    assert traced(tmp_path, work)[KERNELS][0][1]["hlo_module"] == "jit__lambda"


def test_callbacks_and_threads_are_traced(tmp_path):
    seen = []

    @jax.jit
    def shows(x):
        jax.debug.callback(seen.append, x)
        return x + 1

    def work():
        threads = [threading.Thread(target=lambda: shows(np.ones(3, np.float32)).block_until_ready()) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        jax.effects_barrier()

    assert traced(tmp_path, work)[KERNELS] and len(seen) == 4


def test_a_trace_without_work_has_no_kernels(tmp_path):
    assert KERNELS not in traced(tmp_path, lambda: None)


def test_results_are_the_same_in_a_trace(tmp_path):
    f = jax.jit(lambda x: jnp.cumsum(jnp.tanh(x) @ x.T, 0) / 3)
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    before, inside = np.asarray(f(x)), []
    traced(tmp_path, lambda: inside.append(np.asarray(f(x))))
    np.testing.assert_array_equal(before, inside[0])


def test_traces_follow_each_other(tmp_path):
    for name in ("first", "second"):
        folder = tmp_path / name
        assert traced(folder, lambda: jnp.add(np.ones(5, np.float32), 1).block_until_ready())[KERNELS]
