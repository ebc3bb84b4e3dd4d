"""Gradients against differences, for tests."""

import numpy as np

import headrace as hr

_rng = np.random.default_rng(23)


def difference(f, x, step=1e-6):
    """The product of f's gradient and a direction by differences, and by hr.grad and hr.jvp."""
    v = _rng.uniform(-1, 1, x.shape)
    ends = [f(hr.array(x + sign * step * v)).item() for sign in (1, -1)]
    product = (np.asarray(hr.grad(f)(hr.array(x))) * v).sum()
    np.testing.assert_allclose(product, (ends[0] - ends[1]) / (2 * step), 1e-5, 1e-7)
    np.testing.assert_allclose(hr.jvp(f, [hr.array(x)], [hr.array(v)])[1][0].item(), product, 1e-8, 1e-10)
