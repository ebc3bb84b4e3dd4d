"""`tf.function(jit_compile=True)`: TensorFlow's XLA does not know the device, and a call of such a function by hand
fails before the plug-in sees its graph. With this package imported, such functions become clusters like others."""

import functools


def _has_device():
    from tensorflow.python.framework import config

    return bool(config.list_physical_devices("HEADRACE"))


def ignore_jit_compile():
    """Functions that are made from now on do not ask for XLA, if TensorFlow has the device."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    init = polymorphic_function.Function.__init__
    if hasattr(init, "__wrapped__"):
        return

    @functools.wraps(init)
    def init_without(self, *arguments, **named):
        init(self, *arguments, **named)
        if self._jit_compile and _has_device():
            self._jit_compile = None

    polymorphic_function.Function.__init__ = init_without
