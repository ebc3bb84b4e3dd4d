"""`tf.function(jit_compile=True)`: TensorFlow's XLA does not support the device. Direct calls of such functions, as in
Keras' `train_on_batch`, fail before the plug-in gets their graph. Here they become clusters like others.

Thus TensorFlow marks their loops and conditions for lowering, and the optimizer gets the bodies.

The plug-in runs this file when it creates a device. It does not import the package, which is the program's decision.
"""

from typing import Any


def ignore_jit_compile() -> None:
    """Functions do not ask for XLA once TensorFlow has the device, also those that were made before.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    from tensorflow.python.eager.polymorphic_function import polymorphic_function
    from tensorflow.python.framework import config

    if hasattr(polymorphic_function.Function, "_jit_compile"):
        return
    has_device = False

    def is_asked(self: Any) -> Any:
        nonlocal has_device
        asked = vars(self)["_jit_compile"]
        has_device = has_device or (bool(asked) and bool(config.list_physical_devices("HEADRACE")))
        return None if asked and has_device else asked

    def ask(self: Any, value: Any) -> None:
        vars(self)["_jit_compile"] = value

    polymorphic_function.Function._jit_compile = property(is_asked, ask)
