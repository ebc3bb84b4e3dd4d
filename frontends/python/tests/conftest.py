"""For all tests of arrays."""

import os
import zlib

import numpy as np
import pytest

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # of scikit-learn's support of arrays; scipy reads it at its import
os.environ.setdefault("HEADRACE_TF32", "off")  # results are compared with a CPU's, which has no such format


@pytest.fixture(autouse=True)
def _numbers_of_its_own(request):
    """Lets a test draw the same numbers, whatever ran before it in its process."""
    import headrace

    headrace.random.seed(0)
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = type(value.bit_generator)(zlib.crc32(request.node.name.encode())).state
