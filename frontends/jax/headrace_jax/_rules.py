"""Lowering rules for operations that JAX has none for on a platform that it does not know.

- Decompositions of matrices are the custom calls of JAX's CPU backend, whose LAPACK functions the core has, too. LAPACK
  also has the eigenvalues of programs that name the algorithm of another platform, which the CPU's rule refuses.
- Tridiagonal systems are LAPACK's gtsv. With perturbed pivots they are a scan over the rows.
- The rows' order after the exchanges of an LU factorisation is the composite "headrace.lu_permutation" with the
  attribute `rows`. JAX's own rule is a loop over the exchanges.
- erf of floats of 8 bits is that of f32.
- Functions with a partitioning of their own (custom_partitioning) are the function itself: each device has whole
  tensors.
- Cumulative operations are composites: "headrace.cumulative_sum" and so on, with the attributes `axis` and `reverse`.
  A reader that lacks such a name runs the decomposition, which is JAX's associative scan. JAX's own rule is a window as
  long as the axis at each element.
- The random bits of JAX's default generator are the custom call "headrace.threefry", in programs for one device. JAX's
  own rule is 110 operations, which those over several devices have. So would a composite's decomposition be.
"""

import functools

import numpy as np
from headrace_jax import _private

# Rules of the CPU backend that lead to custom calls named lapack_*. Its other rules are for its own compiler.
FROM_CPU = ("eig", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "schur", "svd")
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


def _has_symbols(context):
    """True if a program has dims without numbers: its functions have these as operands, which composites lack."""
    return bool(context.module_context.shape_poly_state.dim_vars)


def _cumulative_rule(primitive, name, combine):
    """JAX's own rule stays for programs with dims without numbers."""
    from jax.interpreters import mlir

    composite = mlir.lower_fun(functools.partial(_cumulative, name, combine), multiple_results=False)
    default = _private.default_rule(primitive)

    def rule(context, x, *, axis, reverse):
        has_numbers = default is None or not _has_symbols(context)
        return (composite if has_numbers else default)(context, x, axis=axis, reverse=reverse)

    return rule


def _erf_rule(primitive):
    """jaxlib expands erf for plug-ins, but not that of floats of 8 bits."""
    import jax.numpy as jnp
    from jax.interpreters import mlir

    default = _private.default_rule(primitive)

    def in_f32(x, **settings):
        return primitive.bind(x.astype(jnp.float32), **settings).astype(x.dtype)

    wide = mlir.lower_fun(in_f32, multiple_results=False)

    def rule(context, x, **settings):
        is_byte = context.avals_in[0].dtype.itemsize == 1
        return (wide if is_byte or default is None else default)(context, x, **settings)

    return rule


THREEFRY = "headrace.threefry"


def _threefry_rule(primitive):
    import jax

    call = jax.ffi.ffi_lowering(THREEFRY)
    default = _private.default_rule(primitive)

    def rule(context, *words):
        devices = getattr(context.module_context.axis_context, "num_devices", 0)
        is_own = default is None or (devices == 1 and not _has_symbols(context))
        return (call if is_own else default)(context, *words)

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
        has_numbers = default is None or (not _has_symbols(context) and all(size > 0 for size in sizes))
        return (composite if has_numbers else default)(context, pivots, permutation_size=permutation_size)

    return rule


def _partitioned_rule(context, *values, call, **_):
    from jax.extend.core import jaxpr_as_fun
    from jax.interpreters import mlir

    return mlir.lower_fun(jaxpr_as_fun(call), multiple_results=True)(context, *values)


def _eigh_rule(cpu):
    def rule(context, x, *, algorithm=None, **parameters):
        return cpu(context, x, algorithm=None, **parameters)

    return rule


def _perturbed_solution(dl, d, du, b):
    """One system by Gaussian elimination with partial pivoting, in which no pivot is smaller than the precision times
    the largest element."""
    import jax.numpy as jnp
    from jax import lax

    real = jnp.finfo(d.dtype)
    least = real.eps * jnp.maximum(jnp.max(jnp.abs(jnp.stack([dl, d, du]))), real.tiny / real.eps)
    zero = jnp.zeros_like(d[0])

    def pivot(row):
        small = jnp.abs(row[0]) < least
        return row.at[0].set(jnp.where(small, jnp.where(jnp.real(row[0]) < 0, -least, least).astype(row.dtype), row[0]))

    def eliminate(upper, lower):
        (row, right), (below, own, beside, b) = upper, lower
        other = jnp.stack([below, own, beside])
        swaps = jnp.abs(below) > jnp.abs(row[0])
        row, other = jnp.where(swaps, other, row), jnp.where(swaps, row, other)
        right, rest = jnp.where(swaps, b, right), jnp.where(swaps, right, b)
        row = pivot(row)
        factor = other[0] / row[0]
        rest, other = rest - factor * right, other[1:] - factor * row[1:]
        return (jnp.append(other, zero), rest), (row, right)

    def substitute(solved, upper):
        (row, right), (next_, second) = upper, solved
        x = (right - row[1] * next_ - row[2] * second) / row[0]
        return (x, next_), x

    first = (jnp.stack([d[0], du[0], zero]), b[0])
    (row, right), rows = lax.scan(eliminate, first, (dl[1:], d[1:], du.at[-1].set(0)[1:], b[1:]))
    last = right / pivot(row)[0]
    x = lax.scan(substitute, (last, jnp.zeros_like(last)), rows, reverse=True)[1]
    return jnp.concatenate([x, last[None]])


def _tridiagonal_rule(cpu):
    import jax
    from jax.interpreters import mlir

    def perturbed(dl, d, du, b):
        solve = _perturbed_solution
        for _ in range(d.ndim - 1):
            solve = jax.vmap(solve)
        return solve(dl, d, du, b)

    scan = mlir.lower_fun(perturbed, multiple_results=False)

    def rule(context, *operands, perturb_singular=False):
        if perturb_singular:
            return scan(context, *operands)
        return cpu(context, *operands, perturb_singular=False)

    return rule


def register(platform):
    """Registers the rules for a platform that JAX knows by name."""
    import jax.lax.linalg  # noqa: F401 (its import registers the CPU's rules)
    from jax.extend.random import threefry2x32_p
    from jax.interpreters import mlir

    for primitive, name, combine in _cumulative_rules():
        mlir.register_lowering(
            primitive, _cumulative_rule(primitive, name, combine), platform=platform, inline=False
        )
    mlir.register_lowering(jax.lax.erf_p, _erf_rule(jax.lax.erf_p), platform=platform)
    primitive = jax.lax.linalg.lu_pivots_to_permutation_p
    mlir.register_lowering(primitive, _permutation_rule(primitive), platform=platform, inline=False)
    mlir.register_lowering(threefry2x32_p, _threefry_rule(threefry2x32_p), platform=platform, inline=False)
    _private.allow_export(THREEFRY)
    primitive = _private.partitioned_primitive()
    if primitive is not None:
        mlir.register_lowering(primitive, _partitioned_rule, platform=platform)
    own = ((jax.lax.linalg.eigh_p, _eigh_rule), (jax.lax.linalg.tridiagonal_solve_p, _tridiagonal_rule))
    for primitive, make in own:
        cpu = _private.rule_of("cpu", primitive)
        if cpu is not None:
            mlir.register_lowering(primitive, make(cpu), platform=platform)
    _private.copy_rules("cpu", platform, FROM_CPU)
