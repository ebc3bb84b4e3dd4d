"""All operators, by the modules that add them to the table."""

from headrace.programs import control, images, indices, pointwise, reductions, shapes
from headrace.programs.table import OPERATORS, Context

__all__ = ["OPERATORS", "Context", "control", "images", "indices", "pointwise", "reductions", "shapes"]
