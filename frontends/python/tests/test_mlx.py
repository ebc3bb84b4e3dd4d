"""headrace.mlx: scripts for MLX in processes of their own, since its rules hold for a process."""

import os
import subprocess
import sys
import textwrap

import headrace as hr

PACKAGES = os.pathsep.join(path for path in sys.path if path)


def run(arguments, **names):
    environment = {**os.environ, "PYTHONPATH": PACKAGES}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([sys.executable, *arguments], env=environment, text=True, **pipes, **names)


def check(text, before="import headrace.mlx; headrace.mlx.install()\nimport mlx.core as mx\n"):
    """Runs the text in a process; its assertions must hold."""
    done = run(["-c", before + textwrap.dedent(text)])
    assert done.returncode == 0, done.stderr


def test_script_runs_unchanged(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        import mlx.core as mx
        import mlx.nn as nn
        import mlx.optimizers as optim
        from mlx.utils import tree_flatten

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(2, 16), nn.Linear(16, 1)]

            def __call__(self, x):
                return self.layers[1](nn.relu(self.layers[0](x)))

        def loss_fn(model, x, y):
            return nn.losses.mse_loss(model(x), y)

        mx.random.seed(0)
        model, optimizer = Model(), optim.Adam(learning_rate=0.02)
        step = nn.value_and_grad(model, loss_fn)
        x = mx.random.uniform(-1, 1, (128, 2))
        y = mx.abs(x[:, :1] - x[:, 1:])
        first = loss_fn(model, x, y).item()
        for _ in range(100):
            loss, grads = step(model, x, y)
            optimizer.update(model, grads)
            mx.eval(model.parameters(), optimizer.state)
        print(sys.argv[1], loss.item() < 0.1 * first, len(tree_flatten(model.parameters())))
    """)
    )
    done = run(["-m", "headrace.mlx", str(script), "argument"])
    assert done.stdout == "argument True 4\n", done.stderr


def test_module_and_wrong_arguments(tmp_path):
    (tmp_path / "shown.py").write_text("import mlx.core as mx\nprint(__name__, mx.arange(3))\n")
    done = run(["-m", "headrace.mlx", "-m", "shown"], cwd=tmp_path)
    assert done.stdout == "__main__ array([0, 1, 2], dtype=int32)\n", done.stderr
    done = run(["-m", "headrace.mlx", "missing.py"])
    assert done.returncode == 2 and "missing.py does not exist" in done.stderr
    assert run(["-m", "headrace.mlx"]).returncode == 2


def test_install_refuses_another_mlx(tmp_path):
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "core.py").write_text("")
    check(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import mlx.core
        import headrace.mlx
        try:
            headrace.mlx.install()
        except ImportError as error:
            assert "mlx" in str(error) and "install() must be first" in str(error), error
        else:
            raise AssertionError("installed")
        """,
        before="",
    )


def test_one_class_and_one_set_of_functions():
    check("""
        import headrace as hr
        assert mx.array is hr.Array and type(mx.zeros(2)) is mx.array
        assert mx.grad is hr.grad and mx.vjp is hr.vjp
        import mlx.nn, mlx.optimizers
        assert mlx.nn.Linear is hr.nn.Linear and mlx.optimizers.Adam is hr.optimizers.Adam
    """)


def test_rules_hold_only_after_the_import():
    x = hr.array([1, 2])
    y = x
    y += 1
    assert str(hr.array([1]).dtype) == "int64" and x.tolist() == [1, 2]
    check("""
        x = mx.array([1, 2])
        y = x
        y += 1
        assert x is y and x.tolist() == [2, 3] and x.dtype == mx.int32
        y *= 0.5
        assert x.dtype == mx.float32 and x.tolist() == [1, 1.5]
        y /= 0.5
        assert x.tolist() == [2, 3]
        assert str(mx.int32) == "mlx.core.int32" and str(x) == "array([2, 3], dtype=float32)"
        assert mx.array(2**40).dtype == mx.int64 and mx.array([1, 2**31]).dtype == mx.int64
        assert mx.array([2**31 - 1, -(2**31)]).dtype == mx.int32
        assert (mx.array(True) + 1).dtype == mx.int32
        assert (mx.array(1, mx.uint64) + mx.array(1)).dtype == mx.float32
        import numpy as np
        assert mx.array(np.ones(2)).dtype == mx.float32
        assert mx.array(np.ones(2, np.int64)).dtype == mx.int64
    """)


def test_in_place_in_transforms():
    check("""
        def f(x):
            y = x * 1
            y += x
            y *= x
            return y.sum()

        x = mx.array([1.0, 2.0])
        assert mx.grad(f)(x).tolist() == [4, 8]
        assert mx.compile(f)(x).item() == 10 and mx.vmap(f)(x).tolist() == [2, 8]
        kept = mx.array([1.0])

        @mx.compile
        def g(x):
            z = kept
            return z + x

        assert g(x).tolist() == [2, 3] and kept.tolist() == [1]
        view = x[:1]
        view += 5
        assert x.tolist() == [1, 2] and view.tolist() == [6]
    """)


def test_errors_are_value_errors():
    check("""
        for text in ("x + 'a'", "x < [1]", "x[5]", "mx.matmul(mx.array([1]), mx.array([1]))", "mx.negative(x > 1)",
                     "mx.array(2, mx.int32) + 3000000000", "x.at.add(1)", "mx.floor(mx.array(1j))", "mx.arange(2) / 1 + [1]"):
            try:
                eval(text, {"mx": mx, "x": mx.array([1.0, 2.0])})
            except ValueError:
                continue
            raise AssertionError(text)
        assert not (mx.array([1]) == [1]) and mx.array([1]) != "a"
    """)


def test_methods_pickle_and_references():
    check("""
        import copy, pickle, weakref
        x = mx.array([[3.0, 1], [2, 4]])
        assert x.transpose(1, 0).tolist() == x.transpose((1, 0)).tolist() == x.T.tolist()
        assert x.argmax().dtype == mx.uint32 and x.argmax().item() == 3
        assert x.astype(mx.int8).sum().dtype == mx.int32
        assert [part.tolist() for part in x.split(2, axis=1)] == [[[3], [2]], [[1], [4]]]
        assert x.square().sqrt().flatten().tolist() == [3, 1, 2, 4]
        assert x.real is x and x.imag.tolist() == [[0, 0], [0, 0]]
        for dtype in (mx.bool_, mx.bfloat16, mx.float16, mx.complex64, mx.int64):
            y = pickle.loads(pickle.dumps(x.astype(dtype)))
            assert y.dtype == dtype and mx.array_equal(y, x.astype(dtype))
        assert weakref.ref(x)() is x and copy.deepcopy(x).tolist() == x.tolist()
        seen = weakref.ref(mx.zeros(2))
        assert seen() is None
        assert f"{x[0, 0]:.2f}" == "3.00"
    """)


def test_printing():
    check("""
        assert str(mx.arange(7)) == "array([0, 1, 2, ..., 4, 5, 6], dtype=int32)"
        assert str(mx.array([1 - 1j])) == "array([1-1j], dtype=complex64)"
        assert str(mx.array([[1, 2], [3, 4]])) == "array([[1, 2],\\n       [3, 4]], dtype=int32)"
        with mx.printoptions(precision=2):
            assert str(mx.array(1.0)) == "array(1.00, dtype=float32)"
        assert str(mx.array(1 / 3)) == "array(0.333333, dtype=float32)"
    """)


def test_functions_against_numpy():
    check("""
        import numpy as np
        x = mx.random.normal((3, 4))
        n = np.array(x)

        def same(a, b):
            np.testing.assert_allclose(np.array(a), b, rtol=2e-5, atol=2e-5)

        same(mx.cumsum(x, 1, reverse=True), np.cumsum(n[:, ::-1], 1)[:, ::-1])
        same(mx.cumsum(x, 0, inclusive=False), np.vstack([np.zeros(4), np.cumsum(n, 0)[:-1]]))
        same(mx.topk(x, 2, axis=1), np.sort(n, 1)[:, -2:])
        same(mx.pad(x, ((1, 2), (0, 3)), mode="symmetric"), np.pad(n, ((1, 2), (0, 3)), mode="symmetric"))
        same(mx.as_strided(x, (2, 3), (4, 1), 1), np.lib.stride_tricks.as_strided(n.ravel()[1:], (2, 3), (16, 4)))
        same(mx.view(x, mx.int32), n.view(np.int32))
        same(mx.softmax(x, axis=(0, 1)), np.exp(n) / np.exp(n).sum())
        same(mx.addmm(mx.ones((3,)), x, x.T, 2.0, 3.0), 3 + 2 * n @ n.T)
        same(mx.diag(x, 1), np.diag(n, 1))
        same(mx.trace(x, 1), np.trace(n, 1))
        same(mx.convolve(x[0], x[1], "same"), np.convolve(n[0], n[1], "same"))
        same(mx.linalg.norm(x, "nuc"), np.linalg.norm(n, "nuc"))
        same(mx.hanning(5), np.hanning(5))
        for size in (12, 20, 28, 8, 24, 80):
            h = np.array(mx.hadamard_transform(mx.eye(size), 1.0))
            assert set(h.ravel()) == {1, -1} and (h @ h.T == size * np.eye(size)).all(), size
        signal = mx.random.normal((64,))
        spectrum = mx.fft.stft(signal, 16, window=mx.hanning(16))
        same(mx.fft.istft(spectrum, 16, window=mx.hanning(16))[4:-4], np.array(signal)[4:-4])
    """)


def test_ranges_orders_and_divmod():
    check("""
        assert mx.arange(-3, None, -1).tolist() == mx.arange(-3, step=-1).tolist() == [0, -1, -2]
        assert mx.arange(3, None).tolist() == [0, 1, 2] and mx.arange(1, None, stop=3).tolist() == [1, 2]
        x = mx.array([2 + 1j, 1j, 2 - 1j])
        assert mx.sort(x).tolist() == [1j, 2 - 1j, 2 + 1j] and mx.argsort(x).tolist() == [1, 2, 0]
        assert mx.argsort(x).dtype == mx.uint32 and mx.median(x).item() == 2 - 1j
        assert [y.tolist() for y in mx.divmod(mx.array([7, -7]), 3)] == [[2, -3], [1, 2]]
        outputs, tangents = mx.jvp(lambda x: mx.divmod(x, mx.array(3.0)), [mx.array(7.0)], [mx.array(1.0)])
        assert [y.item() for y in outputs + tangents] == [2, 1, 0, 0]
    """)


def test_a_mask_takes_as_many_slices_as_it_needs():
    check("""
        x, mask = mx.zeros((4, 2), dtype=mx.int32), mx.array([True, False, False, True])
        y = x
        x[mask] = mx.arange(1, 7).reshape(3, 2) + 0.5
        assert x is y and x.tolist() == [[1, 2], [0, 0], [0, 0], [3, 4]] and x.dtype == mx.int32
        x[mask] = mx.array([7, 8])
        x[x == 0] = mx.array([5])
        assert x.tolist() == [[7, 8], [5, 5], [5, 5], [7, 8]]
        gradient = mx.grad(lambda s: mx.sum(put(mx.ones((4, 2)), s) ** 2))(mx.array([[1.0, 2], [3, 4], [5, 6]]))
        assert gradient.tolist() == [[2, 4], [6, 8], [0, 0]]
        try:
            x[mask] = mx.zeros((2, 3))
        except ValueError as error:
            assert "3" in str(error), error
        else:
            raise AssertionError("assigned")
    """, before="""
import headrace.mlx; headrace.mlx.install()
import mlx.core as mx

def put(x, s):
    x[mx.array([True, False, False, True])] = s
    return x
""")


def test_active_memory_is_that_of_arrays():
    check("""
        def work(size):
            x = mx.random.normal((size, 64))
            mx.eval(mx.softmax(x @ x.T, axis=-1).sum())

        work(8)
        before = mx.get_active_memory()
        for size in (64, 200, 300):
            work(size)
        assert mx.get_active_memory() == before
        x = mx.zeros((1024,)) + 1
        mx.eval(x)
        assert mx.get_active_memory() == before + 4096
    """)


def test_layers_of_a_group_of_one_process():
    check("""
        import mlx.nn as nn
        x = mx.random.normal((3, 64))
        for bias in (True, False):
            layer = nn.Linear(64, 32, bias=bias)
            for kind in ("all-to-sharded", "sharded-to-all"):
                for made_of in (layer, layer.to_quantized(bits=8)):
                    made = nn.shard_linear(made_of, kind)
                    assert mx.array_equal(made(x), made_of(x))
                    assert made.trainable_parameters().keys() == made_of.trainable_parameters().keys()
                nn.shard_inplace(layer, kind)
        assert isinstance(nn.shard_linear(layer, "all-to-sharded"), nn.AllToShardedLinear)
        made = nn.QuantizedShardedToAllLinear(64, 32, bits=4)
        assert isinstance(nn.shard_linear(made, "sharded-to-all"), nn.QuantizedShardedToAllLinear)
        assert made.group.size() == 1 and nn.ShardedToAllLinear(4, 2)(x[:, :4]).shape == (3, 2)
        for call in (lambda: nn.shard_linear(layer, "all"), lambda: nn.shard_inplace(layer, "all")):
            try:
                call()
            except ValueError as error:
                assert "sharding is 'all'" in str(error), error
            else:
                raise AssertionError("sharded")
    """)


def test_random_numbers():
    check("""
        key = mx.random.key(3)
        assert mx.array_equal(mx.random.normal((4,), key=key), mx.random.normal((4,), key=key))
        mx.random.seed(7)
        first = mx.random.uniform(shape=(3,))
        mx.random.seed(7)
        assert mx.array_equal(first, mx.random.uniform(shape=(3,)))
        x = mx.random.randint(mx.array([0, 10]), mx.array([5, 12]), (1000, 2))
        assert x.dtype == mx.int32
        assert x.min(axis=0).tolist() == [0, 10] and x.max(axis=0).tolist() == [4, 11]
        y = mx.random.truncated_normal(mx.array(-1.0), mx.array(2.0), (10000,))
        assert y.min().item() >= -1 and y.max().item() <= 2 and abs(y.mean().item() - 0.2296) < 0.05
        z = mx.random.categorical(mx.log(mx.array([0.1, 0.9])), num_samples=10000)
        assert z.dtype == mx.uint32 and abs(z.mean().item() - 0.9) < 0.02
    """)


def test_runner_reports_a_missing_checkout():
    runner = os.path.join(os.path.dirname(__file__), "..", "..", "..", "tests", "mlx_suite", "run.py")
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_MLX_SOURCE"}
    done = subprocess.run([sys.executable, runner], env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "not run" in done.stdout


def test_gathered_products_of_two_quantized_factors():
    check("""
        import numpy as np
        rng = np.random.default_rng(2)
        x, w = (mx.array(rng.standard_normal(shape).astype("f4")) for shape in ((3, 5, 64), (4, 6, 64)))
        left, right = [2, 0, 1], [[3, 0, 3], [1, 1, 2]]
        for mode in ("nvfp4", "mxfp8"):
            packed = mx.quantize(w, mode=mode)
            at = {"lhs_indices": mx.array(left), "rhs_indices": mx.array(right), "mode": mode}
            products, plain = mx.gather_qqmm(x, *packed, **at), mx.gather_qqmm(x, w, **at)
            assert products.shape == plain.shape == (2, 3, 5, 6)
            for i in range(2):
                for j in range(3):
                    k = right[i][j]
                    expected = np.array(mx.qqmm(x[left[j]], packed[0][k], packed[1][k], mode=mode))
                    np.testing.assert_allclose(np.array(products[i, j]), expected, 1e-5, 1e-5)
                    np.testing.assert_allclose(np.array(plain[i, j]), expected, 1e-5, 1e-5)
        """)


def test_gradients_of_one_process_are_their_means():
    check("""
        import mlx.nn as nn
        tree = {"a": [mx.ones(3)]}
        assert nn.average_gradients(tree) is tree
        """)
