"""Headrace: eager tensor operations, deferred for a moment and fused.

`headrace.torch` is the PyTorch device. It registers itself when torch is imported (see `headrace._autoload`), so that a
script only says device="headrace".
"""

__all__ = []
