"""Python's capsules by their addresses: while a capsule is destroyed, no reference to it may be made."""

import ctypes


def _function(name, result, *arguments):
    """A function of Python's C API with a prototype of its own; the attributes of ctypes.pythonapi are everybody's."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
name_of = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.c_void_p)
pointer_of = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
