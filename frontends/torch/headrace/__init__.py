"""Headrace: lazy execution and fusion of eager tensor operations.

`headrace.torch` is the PyTorch device. It registers itself when torch is imported (see `headrace._autoload`), so a
script only needs device="headrace".
"""

__all__ = []
