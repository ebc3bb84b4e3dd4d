"""JAX's own cache of compiled programs."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import compilation_cache


def test_programs_are_kept_and_read_again(tmp_path):
    values = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    former = {name: getattr(jax.config, name) for name in values}
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if "cache_hits" in name else None)
    try:
        compilation_cache.compilation_cache.reset_cache()
        for name, value in values.items():
            jax.config.update(name, value)
        for _ in range(2):
            jax.clear_caches()
            got = jax.jit(lambda x: jnp.sin(x) * 3)(np.arange(5, dtype=np.float32))
            np.testing.assert_allclose(got, np.sin(np.arange(5)) * 3, rtol=1e-6)
        assert any(pathlib.Path(tmp_path).iterdir()) and hits
    finally:
        for name, value in former.items():
            jax.config.update(name, value)
        compilation_cache.compilation_cache.reset_cache()
