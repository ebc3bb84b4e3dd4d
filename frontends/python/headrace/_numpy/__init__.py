"""NumPy's names beyond the array API standard, a module a family; `headrace` has them all (docs/numpy.md).

A module is loaded when the first of its names is used. Its `__all__` lists them, and scripts/make_python_functions.py
collects these lists in headrace/_names.py.
"""
