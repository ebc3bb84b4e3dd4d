"""Random numbers, transforms, linear algebra and norms of JAX's programs, against JAX's own results on the CPU."""

import numpy as np
import pytest

import headrace as hr

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp, lax = jax.numpy, jax.lax

from test_stablehlo import check  # noqa: E402

# ---- random numbers ----


@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_bits_of_generators_are_those_of_xla(tmp_path, algorithm, dtype):
    key = np.array([7, 0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    chosen = getattr(lax.RandomAlgorithm, algorithm)
    shapes = [(), (1,), (5,), (4, 6), (3, 5), (3, 4, 2), (0, 3)]
    with jax.enable_x64(True):
        check(tmp_path, lambda k: [lax.rng_bit_generator(k, s, dtype, algorithm=chosen) for s in shapes], key)


RANDOM = {
    "bits": lambda k: jax.random.bits(k, (3, 5)),
    "uniform": lambda k: jax.random.uniform(k, (3, 5)),
    "half": lambda k: jax.random.uniform(k, (7,), jnp.float16),
    "bfloat16": lambda k: jax.random.uniform(k, (7,), jnp.bfloat16).astype(jnp.float32),
    "randint": lambda k: jax.random.randint(k, (4, 3), -5, 1000),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (20,)),
    "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
    "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(k, 12)),
}


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_jax(tmp_path, name, implementation):
    data = np.asarray(jax.random.key_data(jax.random.key(5, impl=implementation)))
    check(tmp_path, lambda k: RANDOM[name](jax.random.wrap_key_data(k, impl=implementation)), data)


@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "laplace", "truncated_normal", "interval"])
def test_distributions_of_jax(tmp_path, name):
    sample = {
        "interval": lambda k: jax.random.uniform(k, (3, 5), minval=-2, maxval=3),
        "truncated_normal": lambda k: jax.random.truncated_normal(k, -1, 2, (6, 3)),
    }.get(name, lambda k: getattr(jax.random, name)(k, (6, 3)))
    data = np.asarray(jax.random.key_data(jax.random.key(3)))
    check(tmp_path, lambda k: sample(jax.random.wrap_key_data(k)), data, tolerance=3e-6)


def run_text(tmp_path, count, text, *arguments):
    """The results of each of several runs of a program in MLIR's text."""
    from jax._src.lib import _jax

    path = tmp_path / "program.stablehlo"
    path.write_bytes(_jax.mlir.serialize_portable_artifact(text, "1.16.2", True))
    session = hr.Session(hr.open_model(str(path)))
    inputs = {f"arg{i}": hr.asarray(np.asarray(value)) for i, value in enumerate(arguments)}
    return [[np.asarray(result) for result in session(**inputs).values()] for _ in range(count)]


RNG = """
func.func @main(%a: tensor<TYPE>, %b: tensor<TYPE>) -> tensor<4000xTYPE> {
  %shape = stablehlo.constant dense<4000> : tensor<1xi64>
  %r = stablehlo.rng %a, %b, %shape, distribution = KIND : (tensor<TYPE>, tensor<TYPE>, tensor<1xi64>) -> tensor<4000xTYPE>
  return %r : tensor<4000xTYPE>
}
"""


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rng_gives_other_numbers_in_each_run(tmp_path, dtype):
    text = RNG.replace("TYPE", f"f{8 * np.dtype(dtype).itemsize}")
    (first,), (second,) = run_text(tmp_path, 2, text.replace("KIND", "UNIFORM"), dtype(-1), dtype(3))
    assert not np.array_equal(first, second)
    for numbers in (first, second):
        assert numbers.dtype == dtype and numbers.min() >= -1 and numbers.max() <= 3
        assert np.abs(np.histogram(numbers, 4, (-1, 3))[0] - 1000).max() < 150
    ((normal,),) = run_text(tmp_path, 1, text.replace("KIND", "NORMAL"), dtype(5), dtype(2))
    assert abs(normal.mean(dtype=np.float64) - 5) < 0.15 and abs(normal.std(dtype=np.float64) - 2) < 0.1
    assert abs(np.mean(normal > 7) - 0.1587) < 0.03


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rng_of_integers(tmp_path, dtype):
    text = RNG.replace("TYPE", f"i{8 * np.dtype(dtype).itemsize}").replace("KIND", "UNIFORM")
    ((numbers,),) = run_text(tmp_path, 1, text, dtype(-2), dtype(4))
    assert np.bincount(numbers + 2, minlength=6).min() > 500 and numbers.max() == 3
