"""For Keras' own conftest.py, which its wheel lacks and some of its tests import."""

import pytest


def skip_if_backend(backend, reason):
    import keras  # here: where Keras is missing, pytest reads this file, too

    return pytest.mark.skipif(keras.backend.backend() == backend, reason=reason)
