"""`A^+ b` for an operator: LSMR, and the derivative of the pseudoinverse by further solves.

Rule. With `x = A^+ b`, `r = b - A x`, `y = (A^H)^+ x` and `w = A_dot^H y`,

    x_dot = A^+ (b_dot - A_dot x + (A^H)^+ A_dot^H r - A w) + w

(Golub and Pereyra 1973, equation 4.12, for a rank that does not change). The part with `r` belongs
to systems without a solution, that with `w` to those with many. `A^+ b` is linear in `b`, and its
transpose is the same operation for `A^T`, so that all nestings of derivatives are more solves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.linear_operation import LinearOperation
from difflinalg._core.operation import operation
from difflinalg._core.program import Program
from difflinalg._krylov.orthogonal import scaled_norms

Map = Callable[[Array], Array]
RUNNING, ZERO, COMPATIBLE, STATIONARY, ILL, LIMIT = -1, 0, 1, 2, 3, 7


@dataclass(frozen=True)
class Spec:
    """The operator `A`, a program of its constants and a vector, and the options of a run."""

    program: Program
    rows: int
    columns: int
    atol: float
    btol: float
    conlim: float
    maxiter: int
    transposed: bool = False  # whether the operator is `A^T`

    @property
    def flipped(self) -> "Spec":
        """For the transpose of the operator."""
        return replace(self, transposed=not self.transposed)

    def apply(self, consts: Any, x: Array) -> Array:
        """The image of `x`."""
        if not self.transposed:
            return self.program(list(consts), x)
        example = jax.ShapeDtypeStruct((self.columns,), x.dtype)
        return jax.linear_transpose(lambda y: self.program(list(consts), y), example)(x)[0]


class Solution(NamedTuple):
    """`A^+ b` and how it was found, all floating, named as in SciPy; the norms are true ones."""

    x: Array
    istop: Array
    itn: Array
    normr: Array
    normar: Array
    norma: Array
    conda: Array
    normx: Array
    converged: Array


class _State(NamedTuple):
    """Letters of Fong and Saunders (2011), section 2.8; `_old` is of the step before."""

    x: Array
    u: Array
    v: Array
    h: Array
    h_bar: Array
    alpha: Array
    alpha_bar: Array
    zeta: Array
    zeta_bar: Array
    rho: Array
    rho_bar: Array
    c_bar: Array
    s_bar: Array
    # For the norm of the residual.
    beta_dd: Array
    beta_d: Array
    rho_d: Array
    tau_tilde: Array
    theta_tilde: Array
    # For the norm and the condition of the operator.
    norm_a2: Array
    max_rho: Array
    min_rho: Array
    cond: Array
    istop: Array
    step: Array


def _rotation(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """`c`, `s`, `r` with `c a + s b = r >= 0` and `c b = s a`."""
    r = jnp.hypot(a, b)
    safe = jnp.where(r > 0.0, r, 1.0)
    return jnp.where(r > 0.0, a / safe, 1.0), b / safe, r


def _unit(x: Array) -> tuple[Array, Array]:
    size = jnp.linalg.norm(x)
    return x / jnp.where(size > 0.0, size, 1.0), size


def _over(a: Array, b: Array) -> Array:
    return a / jnp.where(b == 0.0, 1.0, b)


def run(apply: Map, adjoint: Map, b: Array, spec: Spec) -> Solution:
    """LSMR for any right-hand side, scaled to norm 1 before."""
    size = scaled_norms(b)
    safe = jnp.where(size > 0.0, size, 1.0)
    unit = b / safe
    first = _first(unit, adjoint)
    last = lax.while_loop(
        lambda state: state.istop == RUNNING, partial(_step, apply, adjoint, spec), first
    )
    x, real = last.x, size.dtype
    r = unit - apply(x)
    normr, normar = jnp.linalg.norm(r), jnp.linalg.norm(adjoint(r))
    norma, normx = jnp.sqrt(last.norm_a2), jnp.linalg.norm(x)
    slack = tolerances.bound_slack(real)
    noise = tolerances.attainable_rtol(real) * (1.0 + norma * normx)
    solves = normr <= slack * (spec.btol + spec.atol * norma * normx) + noise
    stationary = normar <= norma * (slack * spec.atol * normr + noise)
    ended = (last.istop != ILL) & (last.istop != 6) & (last.istop != LIMIT)
    converged = ended & (solves | stationary) & jnp.isfinite(size)
    return Solution(
        x * safe,
        last.istop.astype(real),
        last.step.astype(real),
        normr * safe,
        normar * safe,
        norma,
        last.cond,
        normx * safe,
        converged.astype(real),
    )


def _first(b: Array, adjoint: Map) -> _State:
    real = jnp.finfo(b.dtype).dtype
    u, beta = _unit(b)
    v, alpha = _unit(adjoint(u))
    one, zero = jnp.ones((), real), jnp.zeros((), real)
    nothing = alpha * beta == 0.0
    return _State(
        jnp.zeros_like(v), u, v, v, jnp.zeros_like(v), alpha, alpha, zero, alpha * beta, one, one,
        one, zero, beta, zero, one, zero, zero, alpha * alpha, zero, one * jnp.inf, one,
        jnp.where(nothing, ZERO, RUNNING).astype(jnp.int32), jnp.zeros((), jnp.int32),
    )  # fmt: skip


def _step(apply: Map, adjoint: Map, spec: Spec, s: _State) -> _State:
    """One step of the bidiagonalisation, two rotations, and the update of the solution."""
    u, beta = _unit(apply(s.v) - s.alpha * s.u)
    v, alpha = _unit(adjoint(u) - beta * s.v)
    c, sine, rho = _rotation(s.alpha_bar, beta)
    theta, alpha_bar = sine * alpha, c * alpha
    theta_bar, rho_temp = s.s_bar * rho, s.c_bar * rho
    c_bar, s_bar, rho_bar = _rotation(rho_temp, theta)
    zeta, zeta_bar = c_bar * s.zeta_bar, -s_bar * s.zeta_bar
    h_bar = s.h - s.h_bar * _over(theta_bar * rho, s.rho * s.rho_bar)
    x = s.x + _over(zeta, rho * rho_bar) * h_bar
    h = v - _over(theta, rho) * s.h
    # The norm of the residual (section 3.3).
    beta_hat, beta_dd = c * s.beta_dd, -sine * s.beta_dd
    c_tilde, s_tilde, rho_tilde = _rotation(s.rho_d, theta_bar)
    theta_tilde, rho_d = s_tilde * rho_bar, c_tilde * rho_bar
    beta_d = -s_tilde * s.beta_d + c_tilde * beta_hat
    tau_tilde = _over(s.zeta - s.theta_tilde * s.tau_tilde, rho_tilde)
    tau_d = _over(zeta - theta_tilde * tau_tilde, rho_d)
    normr = jnp.hypot(beta_d - tau_d, beta_dd)
    # The norm and the condition of the operator (sections 3.1 and 3.5).
    norm_a = jnp.sqrt(s.norm_a2 + beta * beta)
    max_rho = jnp.maximum(s.max_rho, s.rho_bar)
    min_rho = jnp.where(s.step > 0, jnp.minimum(s.min_rho, s.rho_bar), s.min_rho)
    cond = jnp.maximum(max_rho, rho_temp) / _positive(jnp.minimum(min_rho, rho_temp))
    istop = _judge(spec, normr, jnp.abs(zeta_bar), norm_a, cond, jnp.linalg.norm(x), s.step + 1)
    return _State(
        x, u, v, h, h_bar, alpha, alpha_bar, zeta, zeta_bar, rho, rho_bar, c_bar, s_bar, beta_dd,
        beta_d, rho_d, tau_tilde, theta_tilde, norm_a * norm_a + alpha * alpha, max_rho, min_rho,
        cond, istop, s.step + 1,
    )  # fmt: skip


def _positive(x: Array) -> Array:
    return jnp.maximum(x, jnp.finfo(x.dtype).tiny)


def _judge(spec: Spec, normr, normar, norm_a, cond, normx, step: Array) -> Array:
    """Why to stop, in the numbers of SciPy, for a right-hand side of norm 1."""
    test2 = jnp.where(norm_a * normr > 0.0, normar / _positive(norm_a * normr), jnp.inf)
    reasons = (
        (step >= spec.maxiter, LIMIT),
        (1.0 + 1.0 / cond <= 1.0, 6),
        (1.0 + test2 <= 1.0, 5),
        (1.0 + normr / (1.0 + norm_a * normx) <= 1.0, 4),
        ((1.0 / cond <= 1.0 / spec.conlim) if spec.conlim > 0.0 else False, ILL),
        (test2 <= spec.atol, STATIONARY),
        (normr <= spec.btol + spec.atol * norm_a * normx, COMPATIBLE),
        (~jnp.isfinite(normx), LIMIT),
    )
    istop = jnp.asarray(RUNNING, jnp.int32)
    for reason, number in reasons:
        istop = jnp.where(reason, number, istop)
    return istop.astype(jnp.int32)


def _run(consts: Any, b: Array, spec: Spec) -> Solution:
    def adjoint(y: Array) -> Array:
        return jnp.conj(spec.flipped.apply(consts, jnp.conj(y)))

    return run(lambda x: spec.apply(consts, x), adjoint, b, spec)


@operation(statics=1)
def lsmr_core(consts: tuple[Array, ...], b: Array, spec: Spec) -> Solution:
    """`A^+ b` and how it was found."""
    return _run(consts, b, spec)


def _pseudo_solve(*arrays: Any) -> Array:
    """`A^+ b` of the constants of `A` and `b`; NaN where it has not converged."""
    *consts, b, spec = arrays
    found = _run(consts, b, spec)
    return jnp.where(found.converged > 0.0, found.x, jnp.nan)


pseudo_solve = LinearOperation(_pseudo_solve, statics=1)


@pseudo_solve.deftranspose
def _pseudo_solve_transpose(spec: Spec, *arrays: Array) -> Array:
    *consts, cotangent = arrays
    return pseudo_solve(*consts, cotangent, spec.flipped)


@partial(lsmr_core.defjvp, symbolic_zeros=True)
def _lsmr_core_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Solution, Solution]:
    (consts, b), (consts_dot, b_dot) = primals, tangents
    found = lsmr_core(consts, b, spec)
    x_dot = pseudo_tangent(spec, consts, b, found.x, consts_dot, b_dot)
    return found, jax.tree.map(jnp.zeros_like, found)._replace(x=x_dot)


@partial(pseudo_solve.defjvp, symbolic_zeros=True)
def _pseudo_solve_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Array, Array]:
    *consts, b = primals
    *consts_dot, b_dot = tangents
    x = pseudo_solve(*consts, b, spec)
    return x, pseudo_tangent(spec, tuple(consts), b, x, tuple(consts_dot), b_dot)


def pseudo_tangent(
    spec: Spec, consts: Any, b: Array, x: Array, consts_dot: Any, b_dot: Array | None
) -> Array:
    """The tangent of `x = A^+ b`; a tangent that is None is zero."""
    moving = [i for i, dot in enumerate(consts_dot) if dot is not None]

    def moved(spec: Spec, z: Array) -> Array:  # A_dot z
        def image(leaves):
            varied = list(consts)
            for i, leaf in zip(moving, leaves, strict=True):
                varied[i] = leaf
            return spec.apply(varied, z)

        leaves = [consts[i] for i in moving]
        return jax.jvp(image, (leaves,), ([consts_dot[i] for i in moving],))[1]

    def adjoint_solve(z: Array) -> Array:  # (A^H)^+ z
        return jnp.conj(pseudo_solve(*consts, jnp.conj(z), spec.flipped))

    def moved_adjoint(z: Array) -> Array:  # A_dot^H z
        return jnp.conj(moved(spec.flipped, jnp.conj(z)))

    rhs = jnp.zeros_like(b) if b_dot is None else b_dot
    if not moving:
        return pseudo_solve(*consts, rhs, spec)
    r = b - spec.apply(consts, x)
    w = moved_adjoint(adjoint_solve(x))
    rhs = rhs - moved(spec, x) + adjoint_solve(moved_adjoint(r)) - spec.apply(consts, w)
    return pseudo_solve(*consts, rhs, spec) + w
