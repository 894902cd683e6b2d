"""Forward and reverse mode are transposes of each other, to 1e-12, at every spectrum.

`test_cross_product.py` asks this, and more, of the decompositions that tensor networks use; here
are the other names that have a rule or are composed of such. Cotangents are given to the raw
outputs: also what depends on a gauge, and is large where values coincide, has to agree.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_cross_product import (
    HERMITIAN,
    RECTANGULAR,
    SINGULAR,
    adjoint,
    along,
    compiled,
    random_like,
    spectra,
)
from test_cross_product import Operation as Spectra

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

B = np.arange(1.0, 10.0).reshape(3, 3) / 10 + np.eye(3)
DOUBLE, BOTH = (jnp.float64,), (jnp.float64, jnp.complex128)


def identity(a):
    return jnp.eye(a.shape[0], dtype=a.dtype)


def positive(a):
    return a @ adjoint(a) + identity(a)


def regular(a):
    return a + 3 * identity(a)


def solutions(a):
    """Names that are JAX's own."""
    return (
        linalg.solve(regular(a), a),
        linalg.matrix_power(regular(a), -3),
        linalg.multi_dot([a, a, a[0]]),
        linalg.tensorsolve(regular(a), a[0]),
        linalg.tensorinv(regular(a), ind=1),
        scipy_linalg.solve(positive(a), a, assume_a="pos"),
        scipy_linalg.cho_solve(scipy_linalg.cho_factor(positive(a)), a),
        scipy_linalg.lu_solve(scipy_linalg.lu_factor(regular(a)), a),
        scipy_linalg.solve_triangular(regular(a), a),
    )


def norms(a):
    orders = [linalg.norm(a, p) for p in (2, -2, 1, np.inf)]
    conditions = [linalg.cond(a + 3 * jnp.eye(*a.shape), p) for p in (None, 1, "fro", -2)]
    return (*orders, *conditions, linalg.matrix_norm(a), linalg.vector_norm(a, ord=3))


def sylvester(a):
    return (
        scipy_linalg.solve_sylvester(regular(a), regular(adjoint(a)), a),
        scipy_linalg.solve_sylvester(regular(a), regular(adjoint(a)), a, method="eigen"),
        scipy_linalg.solve_continuous_lyapunov(regular(a), a),
        scipy_linalg.solve_discrete_lyapunov(a / 3, a),
    )


def riccati(a):
    args = (a, B.astype(a.dtype), positive(a), identity(a))
    return scipy_linalg.solve_continuous_are(*args), scipy_linalg.solve_discrete_are(*args)


def subspaces(a):
    k = min(2, *a.shape)
    return scipy_linalg.null_space(a, rank=k), scipy_linalg.orth(a, rank=k)


def tridiagonal(a):
    d, e = jnp.diagonal(a).real, jnp.diagonal(a, 1).real
    return scipy_linalg.eigh_tridiagonal(d, e, eigvals_only=False)


def circular(a):
    return scipy_linalg.cosm(a), scipy_linalg.sinm(a), scipy_linalg.tanm(a / 4)


def hyperbolic(a):
    return scipy_linalg.coshm(a), scipy_linalg.sinhm(a), scipy_linalg.tanhm(a / 4)


@dataclass(frozen=True)
class Case:
    """One entry: the outputs, where they have no derivative, and what they are tried with."""

    outputs: object
    undefined: tuple = ()
    shapes: tuple = ("square",)
    dtypes: tuple = DOUBLE
    hermitian: bool = False
    rtol: float = 1e-12


CASES = {
    "lq": Case(lambda a: tuple(linalg.lq(a)), SINGULAR, ("tall", "wide"), BOTH),
    "qr, complete": Case(lambda a: tuple(linalg.qr(a, "complete")), SINGULAR, ("tall",)),
    "qr, pivoting": Case(
        lambda a: scipy_linalg.qr(a, mode="economic", pivoting=True)[:2], SINGULAR, ("wide",)
    ),
    "lu": Case(lambda a: scipy_linalg.lu(a)[1:], SINGULAR, ("tall", "wide"), BOTH),
    "lu_factor": Case(lambda a: (scipy_linalg.lu_factor(a)[0],), ("zero",)),
    "cholesky, upper": Case(lambda a: (scipy_linalg.cholesky(positive(a)),)),
    "eig": Case(lambda a: tuple(linalg.eig(a, left=True)), dtypes=BOTH, hermitian=True),
    "eigvals": Case(lambda a: (linalg.eigvals(a),), hermitian=True),
    "schur": Case(lambda a: scipy_linalg.schur(a), ("zero",), dtypes=(jnp.complex128,)),
    "rsf2csf": Case(lambda a: scipy_linalg.rsf2csf(*scipy_linalg.schur(a)), ("zero",)),
    "hessenberg": Case(lambda a: scipy_linalg.hessenberg(a, calc_q=True), ("zero",)),
    "logm": Case(lambda a: (scipy_linalg.logm(regular(a)),)),
    "fractional_matrix_power": Case(
        lambda a: (scipy_linalg.fractional_matrix_power(regular(a), 0.3),)
    ),
    "signm": Case(lambda a: (scipy_linalg.signm(a + 0.3 * identity(a)),)),
    "cosm, sinm, tanm": Case(circular),
    "coshm, sinhm, tanhm": Case(hyperbolic),
    "expm_frechet": Case(lambda a: scipy_linalg.expm_frechet(a, a @ a)),
    # It divides by the distance, 1e-8, of values moved apart, twice in opposite order.
    "funm": Case(lambda a: (scipy_linalg.funm(a, jnp.cosh),), hermitian=True, rtol=1e-7),
    "solutions": Case(solutions),
    "lstsq": Case(lambda a: linalg.lstsq(a, a[:, :2] + 1)[:2], shapes=("tall", "wide")),
    "norms and cond": Case(norms, dtypes=BOTH),
    "solve_sylvester and Lyapunov": Case(sylvester),
    "Riccati": Case(riccati),
    "eigh, with b": Case(lambda a: scipy_linalg.eigh(a, positive(a)), hermitian=True),
    "eigh_tridiagonal": Case(tridiagonal, hermitian=True),
    "leading_space": Case(lambda a: (linalg.leading_space(a, 2)[0],), ("zero",), hermitian=True),
    "null_space, orth": Case(subspaces, ("zero",), ("tall", "wide"), BOTH),
    "subspace_angles": Case(
        lambda a: (scipy_linalg.subspace_angles(a, a[:, :1] + B[:, :1], rank_a=2, rank_b=1),),
        ("zero",),
    ),
    "polar, left": Case(lambda a: tuple(scipy_linalg.polar(a, side="left")), SINGULAR, ("wide",)),
}


def both_modes(case, d, cotangents, a):
    outputs_dot = jax.jvp(case.outputs, (a,), (d,))[1]
    pulled = jax.vjp(case.outputs, a)[1](cotangents)[0]
    products = [jnp.real(c * t) for c, t in zip(cotangents, outputs_dot, strict=True)]
    size = sum(jnp.sum(jnp.abs(x)) for x in products) + jnp.sum(jnp.abs(pulled * d))
    return sum(jnp.sum(x) for x in products), along(pulled, d), size


@pytest.mark.parametrize(
    ("name", "dtype"),
    [pytest.param(n, t, id=f"{n}-{t.__name__}") for n, case in CASES.items() for t in case.dtypes],
)
def test_forward_and_reverse_mode_agree_at_every_spectrum(name, dtype):
    case, wrong = CASES[name], []
    for label in case.shapes:
        of = Spectra(case.outputs, None, None, HERMITIAN if case.hermitian else RECTANGULAR)
        kinds, stack = spectra(of, RECTANGULAR[label], dtype)
        outputs = jax.eval_shape(case.outputs, stack[0])
        cotangents = tuple(random_like(10 + i, x) for i, x in enumerate(outputs))
        d = random_like(1, stack[0])
        run = compiled(jax.vmap(lambda a, d=d, c=cotangents: both_modes(case, d, c, a)))
        for kind, forward, reverse, size in zip(kinds, *map(np.asarray, run(stack)), strict=True):
            error = abs(forward - reverse)
            floor = size if case.rtol == 1e-12 else max(size, 1.0)
            if kind not in case.undefined and not error <= case.rtol * floor:  # NaN is wrong too
                wrong.append(f"{label}, {kind}: {forward} and {reverse}, of terms {size:.1e}")
    assert not wrong, "\n".join(wrong)
