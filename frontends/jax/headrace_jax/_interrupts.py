"""Ctrl-C in jax.block_until_ready: JAX waits without the plug-in, which is told here to cancel the pending work.

The program that runs ends before its next step, or the next iteration of a loop. Later results do not wait for it.
"""

import ctypes
import functools

from headrace_jax import _private


def register(path):
    """Lets Ctrl-C cancel what a wait of JAX waits for; `path` is the plug-in's."""
    import jax

    library = ctypes.CDLL(path)
    library.headrace_jax_interrupt.restype = None

    def wrap(original):
        def wait(x):
            try:
                return original(x)
            except KeyboardInterrupt:
                library.headrace_jax_interrupt()
                raise

        return wait

    _private.wrap_array_method("block_until_ready", wrap)
    if not getattr(jax.block_until_ready, "is_wrapped", False):
        jax.block_until_ready = functools.wraps(jax.block_until_ready)(wrap(jax.block_until_ready))
        jax.block_until_ready.is_wrapped = True
