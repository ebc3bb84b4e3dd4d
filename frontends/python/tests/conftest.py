"""For all tests of arrays."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # of scikit-learn's support of arrays; scipy reads it at its import
