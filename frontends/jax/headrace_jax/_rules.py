"""Lowering rules for operations that JAX has none for on a platform that it does not know.

- Decompositions of matrices are the custom calls of JAX's CPU backend, whose LAPACK functions the core has, too.
- The rows' order after the exchanges of an LU factorisation is the composite "headrace.lu_permutation" with the attribute
  `rows`. JAX's own rule is a loop over the exchanges.
- Functions with a partitioning of their own (custom_partitioning) are the function itself: each device has whole tensors.
- Cumulative operations are composites: "headrace.cumulative_sum" and so on, with the attributes `axis` and `reverse`.
  A reader that lacks such a name runs the decomposition, which is JAX's associative scan. JAX's own rule is a window as
  long as the axis at each element.
"""

import functools

import numpy as np
from headrace_jax import _private

# Rules of the CPU backend that lead to custom calls named lapack_*. Its other rules are for its own compiler.
FROM_CPU = ("eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "schur", "svd")
FROM_CPU += ("approx_top_k", "tridiagonal")


def _cumulative_rules():
    import jax.numpy as jnp
    from jax import lax

    return (
        (lax.cumsum_p, "headrace.cumulative_sum", lax.add),
        (lax.cumprod_p, "headrace.cumulative_prod", lax.mul),
        (lax.cummax_p, "headrace.cumulative_max", lax.max),
        (lax.cummin_p, "headrace.cumulative_min", lax.min),
        (lax.cumlogsumexp_p, "headrace.cumulative_logsumexp", jnp.logaddexp),
    )


def _cumulative(name, combine, x, *, axis, reverse):
    from jax import lax

    def scan(x, *, axis, reverse):
        return lax.associative_scan(combine, x, reverse=bool(reverse), axis=int(axis))

    return lax.composite(scan, name)(x, axis=np.int64(axis), reverse=np.int64(reverse)) if x.shape[axis] > 0 else x


def _cumulative_rule(primitive, name, combine):
    """JAX's own rule stays for axes without a number, which a scan can't unroll."""
    from jax.interpreters import mlir

    composite = mlir.lower_fun(functools.partial(_cumulative, name, combine), multiple_results=False)
    default = _private.default_rule(primitive)

    def rule(context, x, *, axis, reverse):
        has_number = default is None or isinstance(context.avals_in[0].shape[axis], int)
        return (composite if has_number else default)(context, x, axis=axis, reverse=reverse)

    return rule


def _permutation(pivots, *, permutation_size):
    from jax import lax

    def decomposition(pivots, *, rows):
        return _private.lu_permutation(pivots, int(rows))

    return lax.composite(decomposition, "headrace.lu_permutation")(pivots, rows=np.int64(permutation_size))


def _permutation_rule(primitive):
    """JAX's own rule stays for dims without a number."""
    from jax.interpreters import mlir

    composite = mlir.lower_fun(_permutation, multiple_results=False)
    default = _private.default_rule(primitive)

    def rule(context, pivots, *, permutation_size):
        sizes = (*context.avals_in[0].shape, permutation_size)
        has_numbers = default is None or all(isinstance(size, int) and size > 0 for size in sizes)
        return (composite if has_numbers else default)(context, pivots, permutation_size=permutation_size)

    return rule


def _partitioned_rule(context, *values, call, **_):
    from jax.extend.core import jaxpr_as_fun
    from jax.interpreters import mlir

    return mlir.lower_fun(jaxpr_as_fun(call), multiple_results=True)(context, *values)


def register(platform):
    """Registers the rules for a platform that JAX knows by name."""
    import jax.lax.linalg  # noqa: F401 (its import registers the CPU's rules)
    from jax.interpreters import mlir

    for primitive, name, combine in _cumulative_rules():
        mlir.register_lowering(
            primitive, _cumulative_rule(primitive, name, combine), platform=platform, inline=False
        )
    primitive = jax.lax.linalg.lu_pivots_to_permutation_p
    mlir.register_lowering(primitive, _permutation_rule(primitive), platform=platform, inline=False)
    primitive = _private.partitioned_primitive()
    if primitive is not None:
        mlir.register_lowering(primitive, _partitioned_rule, platform=platform)
    _private.copy_rules("cpu", platform, FROM_CPU)
