"""mlx.nn: the layers of headrace.nn, and those that MLX divides among processes."""

from headrace.mlx._sharded import *  # noqa: F403
from headrace.nn import *  # noqa: F403
from headrace.nn import init, losses

__all__ = [name for name in dir() if not name.startswith("_")]
