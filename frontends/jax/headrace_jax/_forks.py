"""Forked processes: JAX compiles on threads of its own, which stay in the parent, and a child would wait for ever.

Values from before the fork can be read, and programs that were compiled before it run: the core starts its threads
again."""

import os

from headrace_jax import _private

_platforms = set()  # those whose backends were opened by an ancestor of this process


def _note(platform):
    if _private.is_backend_open(platform):
        _platforms.add(platform)


def check(platform):
    """Raises an error if this process cannot compile programs for the platform."""
    if platform in _platforms:
        raise RuntimeError(
            "headrace_jax: JAX cannot compile a program in a forked process, because its threads stayed in the parent. "
            'Start processes with multiprocessing.get_context("spawn") or "forkserver", fork before JAX is first used, '
            "or compile the program before the fork"
        )


def register(platform):
    """Lets programs for a platform fail in forked processes, instead of waiting."""
    os.register_at_fork(after_in_child=lambda: _note(platform))
    _private.check_compilations(platform, lambda: check(platform))
