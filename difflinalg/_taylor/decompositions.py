"""Rules of the decompositions and matrix functions of this package; their series are elsewhere."""

import jax

from difflinalg._core.known import known
from difflinalg._dense import (
    eigh,
    eigh_trunc,
    funm_hermitian,
    matrix_function,
    polar,
    sqrtm,
    svd,
    svd_trunc,
)
from difflinalg._krylov import eigsh_rule, linear_map, svds
from difflinalg._taylor.convolution import set_order
from difflinalg._taylor.hermitian import eigh_series
from difflinalg._taylor.hermitian_functions import funm_series
from difflinalg._taylor.krylov import eigsh_series, solve_series, svds_series
from difflinalg._taylor.matrix_functions import (
    frechet_series,
    matrix_function_series,
    polar_series,
    sqrtm_series,
)
from difflinalg._taylor.rules import operation_rule
from difflinalg._taylor.series import Series, full, is_series, primal, primals
from difflinalg._taylor.singular import svd_series
from difflinalg._taylor.truncated import eigh_trunc_series, svd_trunc_series


@operation_rule(eigh.eigh_core)
def _eigh(a, anchor, level, cluster_rtol, *, order):
    if not is_series(a):
        return eigh.eigh_core(a, primal(anchor), level, cluster_rtol)
    w, v = eigh_series(full(a, order), primal(anchor), level, cluster_rtol)
    return Series(w), Series(v)


@operation_rule(eigh.eigvalsh_core)
def _eigvalsh(a, anchor, cluster_rtol, *, order):
    if not is_series(a):
        return eigh.eigvalsh_core(a, primal(anchor), cluster_rtol)
    return Series(eigh_series(full(a, order), primal(anchor), 0, cluster_rtol)[0])


@operation_rule(svd.svd_core)
def _svd(a, full_matrices, level, cluster_rtol, *, order):
    return tuple(map(Series, svd_series(full(a, order), full_matrices, level, cluster_rtol)))


@operation_rule(svd.svdvals_core)
def _svdvals(a, cluster_rtol, *, order):
    return Series(svd_series(full(a, order), False, 0, cluster_rtol)[1])


@operation_rule(eigh_trunc.eigh_trunc_core)
def _eigh_trunc(a, spec, which, level, *, order):
    kept, deflation, origin = eigh_trunc_series(full(a, order), spec, which, level)
    return jax.tree.map(Series, kept), deflation, origin


@operation_rule(svd_trunc.svd_trunc_core)
def _svd_trunc(factors, product, spec, level, *, order):
    series = tuple(full(factor, order) for factor in factors)
    kept, deflation = svd_trunc_series(series, primal(product), spec, level)
    return jax.tree.map(Series, kept), deflation


@operation_rule(known)
def _known(expression, value, *, order):
    return Series(set_order(full(expression, order), 0, primal(value)))


@operation_rule(matrix_function.matrix_function)
def _matrix_function(a, f, *, order):
    return Series(matrix_function_series(full(a, order), f))


@operation_rule(matrix_function.frechet_derivative)
def _frechet(a, e, f, *, order):
    return Series(frechet_series(full(a, order), full(e, order), f))


@operation_rule(polar.polar_core)
def _polar(a, options, *, order):
    w, p = polar.polar_core(primal(a), options)
    return tuple(map(Series, polar_series(full(a, order), w, p)))


@operation_rule(funm_hermitian.funm_core)
def _funm(a, arguments, function, *, order):
    _, w, v = funm_hermitian.funm_core(*primals((a, arguments)), function)
    return Series(funm_series(full(a, order), arguments, function, order)), w, v


@operation_rule(sqrtm.sqrtm_core)
def _sqrtm(a, *, order):
    root, u, z = sqrtm_series(full(a, order))
    return Series(root), u, z


@operation_rule(eigsh_rule.eigsh_core)
def _eigsh(ops, start, sigma, spec, *, order):
    return eigsh_series(ops, start, sigma, spec, order)


@operation_rule(svds.svds_core)
def _svds(maps, spec, *, order):
    return svds_series(maps, spec, order)


@operation_rule(linear_map.solve_core)
def _solve(a, inverse, b, begin, bound, spec, *, order):
    return solve_series(a, inverse, b, begin, bound, spec, order)
