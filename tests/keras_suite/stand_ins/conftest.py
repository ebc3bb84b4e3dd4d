"""For Keras' own conftest.py, which its wheel lacks and some of its tests import."""

import keras
import pytest


def skip_if_backend(backend, reason):
    return pytest.mark.skipif(keras.backend.backend() == backend, reason=reason)
