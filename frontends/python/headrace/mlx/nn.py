"""mlx.nn: the layers of headrace.nn."""

from headrace.nn import *  # noqa: F403
from headrace.nn import init, losses

__all__ = [name for name in dir() if not name.startswith("_")]
