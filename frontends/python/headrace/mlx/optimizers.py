"""mlx.optimizers: those of headrace.optimizers."""

from headrace.optimizers import *  # noqa: F403

__all__ = [name for name in dir() if not name.startswith("_")]
