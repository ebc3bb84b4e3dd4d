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

    def wait(original, *arguments):
        try:
            return original(*arguments)
        except KeyboardInterrupt:
            library.headrace_jax_interrupt()
            raise

    _private.wrap_array_method("block_until_ready", wait)
    if not getattr(jax.block_until_ready, "is_wrapped", False):
        all_ready = jax.block_until_ready
        jax.block_until_ready = functools.wraps(all_ready)(lambda x: wait(all_ready, x))
        jax.block_until_ready.is_wrapped = True
