"""Steps of Keras' LossScaleOptimizer in functions read nothing.

Keras asks whether all gradients are finite, and updates in a branch. TensorFlow reads the answer on the host in each
step, which waits for the device. Here the update is always computed, and each variable takes its old value back if a
gradient is not finite, with the same bits.

The plug-in runs this file when it creates a device, as jit.py.
"""

import sys
from typing import Any


def select_updates() -> None:
    """Changes Keras, which TensorFlow has imported if it is there.

    An error (ImportError, AttributeError) means that Keras' code is not the one that is known here.
    """
    if "keras" in sys.modules:
        change_optimizer()


def change_optimizer() -> None:
    import tensorflow as tf
    from keras.src import ops
    from keras.src.backend import Variable
    from keras.src.backend.common.stateless_scope import in_stateless_scope
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    apply = LossScaleOptimizer._tf_apply

    def is_plain(self: Any, grads: Any, trained: Any) -> bool:
        """True if a step updates dense variables of the device alone, by Keras' own code."""
        inner = self.inner_optimizer
        values = [variable._value for variable in [*trained, *self.variables]]
        return (
            type(inner).__module__.startswith("keras.src.optimizers.")
            and inner.gradient_accumulation_steps is None
            and not inner.use_ema
            and all(isinstance(grad, tf.Tensor) for grad in grads)
            and not any(self._overwrite_variable_with_gradient(variable) for variable in trained)
            and all(isinstance(value, tf.Variable) and "HEADRACE" in value.device for value in values)
        )

    def apply_without_branch(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        trained = list(trainable_variables or self._trainable_variables)
        is_usual = not tf.executing_eagerly() and not tf.distribute.has_strategy() and not in_stateless_scope()
        if not is_usual or type(self) is not LossScaleOptimizer or not is_plain(self, grads, trained):
            apply(self, grads, trainable_variables)
            return
        inner, counter, scale = self.inner_optimizer, self.step_counter._value, self.dynamic_scale._value
        is_finite = self.check_finite(grads)
        others = [value for value in vars(inner).values() if isinstance(value, Variable)]  # as of Nadam
        changed = {id(one): one for one in [*trained, *inner.variables, *others]}
        values = [variable._value for variable in changed.values()]
        kept = [tf.identity(value) for value in values]
        unscaled = [ops.divide(grad, self.dynamic_scale) for grad in grads]  # in float32 at least
        inner.apply(unscaled, trainable_variables=trainable_variables)
        for value, old in zip(values, kept, strict=True):
            value.assign(tf.where(is_finite, value, old))
        is_last = tf.equal(counter, self.dynamic_growth_steps - 1)
        scale.assign(scale * tf.where(is_finite, tf.where(is_last, 2.0, 1.0), 0.5))
        counter.assign(tf.where(is_finite & ~is_last, counter + 1, 0))

    LossScaleOptimizer._tf_apply = apply_without_branch
