"""Every operation x spectrum x dtype x shape x transformation; an operation is one entry.

An entry names the raw outputs of an operation and functions of them that are free of its gauge
and smooth in the matrix; NumPy computes the same functions for the values and, by differences,
for the derivatives. All spectra of one shape and dtype go through one compiled program.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg
from difflinalg.testing import random_hermitian, random_matrix, spectrum

KINDS = ("generic", "clustered", "degenerate", "rank_deficient", "zero")
DTYPES = (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128)
RECTANGULAR = {"tall": (4, 3), "square": (3, 3), "wide": (3, 4), "1x1": (1, 1), "0x0": (0, 0)}
HERMITIAN = {"square": (3, 3), "1x1": (1, 1), "0x0": (0, 0)}
SINGULAR = ("rank_deficient", "zero")


def adjoint(x):
    return x.conj().T


def herm(a):
    return (a + adjoint(a)) / 2


def function_of(q, values):
    return (q * values) @ adjoint(q)


@dataclass(frozen=True)
class Operation:
    """One entry.

    Attributes:
        outputs: the operation, a tuple of arrays.
        invariants: smooth functions of the matrix, from it and the outputs; also for NumPy.
        reference: what NumPy has in place of the outputs.
        shapes: names of shapes and the shapes.
        undefined: spectra at which no derivative exists.
        continuous: the invariants whose values are fixed even there.
    """

    outputs: Callable
    invariants: Callable
    reference: Callable
    shapes: dict = field(default_factory=lambda: RECTANGULAR)
    undefined: tuple = ()
    continuous: tuple = ()


def compiled(f):
    """`jax.jit` without LLVM's optimisation, which takes half of the time to compile."""
    return jax.jit(f, compiler_options={"xla_backend_optimization_level": "0"})


def rank(a):
    return min(2, *a.shape)


def numpy_eigh_trunc(a):
    w, v = np.linalg.eigh(herm(a))
    order = np.argsort(-abs(w))[: rank(a)]
    return w[order], v[:, order]


def numpy_svd_trunc(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u[:, : rank(a)], s[: rank(a)], vh[: rank(a)]


def numpy_polar(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u @ vh, function_of(adjoint(vh), s)


def without_empty(shapes):
    return {name: shape for name, shape in shapes.items() if name != "0x0"}


OPERATIONS = {
    "svd": Operation(
        lambda a: tuple(linalg.svd(a)),
        lambda _, u, s, vh: (
            (u[:, : s.size] * s) @ vh[: s.size],
            (u[:, : s.size] * (s - s**3)) @ vh[: s.size],
            function_of(adjoint(vh[: s.size]), s**2 / (1 + s**2)),
        ),
        np.linalg.svd,
    ),
    "svdvals": Operation(
        lambda a: (linalg.svdvals(a),),
        lambda _, s: ((s**2).sum(), (1 / (1 + s**2)).sum()),
        lambda a: (np.linalg.svd(a, compute_uv=False),),
    ),
    "eigh": Operation(
        lambda a: tuple(linalg.eigh(a)),
        lambda _, w, v: (function_of(v, w), function_of(v, 1 / (1 + w**2))),
        lambda a: np.linalg.eigh(herm(a)),
        HERMITIAN,
    ),
    "eigvalsh": Operation(
        lambda a: (linalg.eigvalsh(a),),
        lambda _, w: ((w**3).sum(), (1 / (1 + w**2)).sum()),
        lambda a: (np.linalg.eigvalsh(herm(a)),),
        HERMITIAN,
    ),
    "funm_hermitian": Operation(
        lambda a: (linalg.funm_hermitian(a, lambda x: jnp.exp(x) / (1 + x**2)),),
        lambda _, f: (f,),
        lambda a: (
            (lambda w, v: function_of(v, np.exp(w) / (1 + w**2)))(*np.linalg.eigh(herm(a))),
        ),
        HERMITIAN,
    ),
    "svd_trunc": Operation(
        lambda a: tuple(linalg.svd_trunc(a, rank(a))[:3]),
        lambda a, u, _, vh: (u @ adjoint(u), u @ (adjoint(u) @ a @ adjoint(vh)) @ vh),
        numpy_svd_trunc,
        without_empty(RECTANGULAR),
        undefined=("zero",),
        continuous=(1,),
    ),
    "eigh_trunc": Operation(
        lambda a: tuple(linalg.eigh_trunc(herm(a), rank(a))[:2]),
        lambda a, _, v: (v @ adjoint(v), v @ (adjoint(v) @ herm(a) @ v) @ adjoint(v)),
        numpy_eigh_trunc,
        without_empty(HERMITIAN),
        undefined=("zero",),
        continuous=(1,),
    ),
    "det": Operation(
        lambda a: (linalg.det(a),),
        lambda _, det: (det,),
        lambda a: (np.linalg.det(a),),
        HERMITIAN,
    ),
    "slogdet": Operation(
        lambda a: tuple(linalg.slogdet(a)),
        lambda _, sign, log: (sign, log),
        lambda a: tuple(np.linalg.slogdet(a)),
        HERMITIAN,
        undefined=SINGULAR,
    ),
    "inv": Operation(
        lambda a: (linalg.inv(a + 2 * jnp.eye(a.shape[0], dtype=a.dtype)),),
        lambda _, inverse: (inverse,),
        lambda a: (np.linalg.inv(a + 2 * np.eye(a.shape[0])),),
        HERMITIAN,
    ),
    "cholesky": Operation(
        lambda a: (linalg.cholesky(a @ adjoint(a) + jnp.eye(a.shape[0], dtype=a.dtype)),),
        lambda _, lower: (lower,),
        lambda a: (np.linalg.cholesky(a @ adjoint(a) + np.eye(a.shape[0])),),
        HERMITIAN,
    ),
    "qr": Operation(
        lambda a: tuple(linalg.qr(a)),
        lambda _, q, r: (q, r),
        lambda a: tuple(np.linalg.qr(a)),
        without_empty(RECTANGULAR),
        undefined=SINGULAR,
    ),
    "pinv": Operation(
        lambda a: (linalg.pinv(a),),
        lambda _, inverse: (inverse,),
        lambda a: (np.linalg.pinv(a),),
        without_empty(RECTANGULAR),
        undefined=SINGULAR,
    ),
    "norm": Operation(
        lambda a: (linalg.norm(a), linalg.norm(a, "nuc")),
        lambda _, frobenius, nuclear: (frobenius, nuclear),
        lambda a: (np.linalg.norm(a), np.linalg.norm(a, "nuc")),
        without_empty(RECTANGULAR),
        undefined=SINGULAR,
        continuous=(0, 1),
    ),
    "expm": Operation(
        lambda a: (scipy_linalg.expm(a),),
        lambda _, exponential: (exponential,),
        lambda a: (scipy.linalg.expm(a),),
        HERMITIAN,
    ),
    "sqrtm": Operation(
        lambda a: (scipy_linalg.sqrtm(a @ adjoint(a) + jnp.eye(a.shape[0], dtype=a.dtype)),),
        lambda _, root: (root,),
        lambda a: (scipy.linalg.sqrtm(a @ adjoint(a) + np.eye(a.shape[0])),),
        without_empty(HERMITIAN),
    ),
    "polar": Operation(
        lambda a: tuple(scipy_linalg.polar(a)),
        lambda _, u, p: (u @ p, u, p),
        numpy_polar,
        undefined=SINGULAR,
        continuous=(0, 2),
    ),
}

CASES = [
    pytest.param(name, shape, dtype, id=f"{name}-{label}-{dtype.__name__}")
    for name, operation in OPERATIONS.items()
    for label, shape in operation.shapes.items()
    for dtype in DTYPES
]


def spectra(operation, shape, dtype):
    """Names of spectra and matrices that have them; a 1 x 1 or 0 x 0 matrix has one."""
    kinds = KINDS if min(shape) > 1 else ("generic",)
    key = jax.random.key(3)
    if operation.shapes.get("tall"):
        make = lambda s: random_matrix(key, s, shape, dtype)  # noqa: E731
    else:
        make = lambda s: random_hermitian(key, s, dtype)  # noqa: E731
    return kinds, np.stack([make(spectrum(kind, min(shape), dtype)) for kind in kinds])


def random_like(seed, x):
    value = jax.random.normal(jax.random.key(seed), x.shape, x.dtype)
    return np.asarray(value / max(np.linalg.norm(value), 1.0))


def loss(operation, weights, a, outputs):
    terms = zip(weights, operation.invariants(a, *outputs), strict=True)
    return sum((w.conj() * x).real.sum() for w, x in terms)


def along(gradient, d):
    """The directional derivative that belongs to a gradient in JAX's convention."""
    return jnp.sum(jnp.real(gradient * d))


def program(operation, weights, cotangents):
    """All that is checked of one matrix: values, and derivatives along d and e."""

    def f(a):
        return loss(operation, weights, a, operation.outputs(a))

    def numbers(a, d, e):
        outputs_dot = jax.jvp(operation.outputs, (a,), (d,))[1]
        pulled = jax.vjp(operation.outputs, a)[1](cotangents)[0]
        products = [jnp.real(c * t) for c, t in zip(cotangents, outputs_dot, strict=True)]
        return {
            "invariants": operation.invariants(a, *operation.outputs(a)),
            "jvp": jax.jvp(f, (a,), (d,))[1],
            "vjp": jax.grad(f)(a),
            "jvp of vjp": along(jax.jvp(jax.grad(f), (a,), (e,))[1], d),
            "forward": sum(jnp.sum(x) for x in products),
            "reverse": along(pulled, d),
            "size": sum(jnp.sum(jnp.abs(x)) for x in products) + jnp.sum(jnp.abs(pulled * d)),
        }

    return numbers


def differences(f, directions, h):
    """The mixed derivative along one or two directions, by differences of fourth order."""
    stencil = ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0))
    total = 0.0
    for points in itertools.product(stencil, repeat=len(directions)):
        shift = sum(step * h * d for (step, _), d in zip(points, directions, strict=True))
        total += np.prod([weight / (12 * h) for _, weight in points]) * f(shift)
    return total


def tolerances(dtype, kind):
    """What values, first and second derivatives may be off, relative to their size."""
    single = jnp.finfo(dtype).bits == 32
    if kind == "generic":
        return (3e-5, 3e-5, 3e-4) if single else (1e-12, 1e-9, 1e-6)
    return (3e-5, 5e-3, 1.5e-1) if single else (1e-12, 3e-7, 3e-4)


def comparisons(operation, kind, got, weights, a, d, e):
    """What differs, by how much, and what is allowed; `a`, `d` and `e` are double."""

    def f(shift):
        return loss(operation, weights, a + shift, operation.reference(a + shift))

    rtol, rtol_1, rtol_2 = tolerances(got["vjp"].dtype, kind)
    expected = operation.invariants(a, *operation.reference(a))
    for number, (value, right) in enumerate(zip(got["invariants"], expected, strict=True)):
        if kind not in operation.undefined or number in operation.continuous:
            size = max(1.0, np.max(np.abs(right), initial=0.0))
            yield f"invariant {number}", np.max(np.abs(value - right), initial=0.0), rtol * size
    if kind in operation.undefined:
        return
    size = max(np.linalg.norm(got["vjp"]), 1.0)
    first = differences(f, [d], 1e-3)
    yield "jvp", abs(got["jvp"] - first), rtol_1 * size
    yield "vjp", abs(along(got["vjp"], d) - first), rtol_1 * size
    rounding = 4500 * np.finfo(got["size"].dtype).eps  # 1e-12 in double precision
    yield "transpose", abs(got["forward"] - got["reverse"]), rounding * got["size"]
    second = differences(f, [d, e], 5e-3)
    yield "jvp of vjp", abs(got["jvp of vjp"] - second), rtol_2 * max(abs(second), size)


@pytest.mark.parametrize(("name", "shape", "dtype"), CASES)
def test_value_and_derivatives_are_right(name, shape, dtype):
    operation = OPERATIONS[name]
    kinds, stack = spectra(operation, shape, dtype)
    d, e = random_like(1, stack[0]), random_like(2, stack[0])
    outputs = jax.eval_shape(operation.outputs, stack[0])
    cotangents = tuple(random_like(10 + i, x) for i, x in enumerate(outputs))
    invariants = jax.eval_shape(operation.invariants, stack[0], *outputs)
    weights = tuple(random_like(20 + i, x) for i, x in enumerate(invariants))
    numbers = compiled(jax.vmap(program(operation, weights, cotangents), (0, None, None)))
    together = jax.tree.map(np.asarray, numbers(stack, d, e))
    wide = np.complex128 if np.iscomplexobj(stack) else np.float64
    wrong = []
    for index, (kind, a) in enumerate(zip(kinds, stack, strict=True)):
        got = jax.tree.map(lambda x, i=index: x[i], together)
        double = [x.astype(wide) for x in (a, d, e)]
        for what, error, allowed in comparisons(operation, kind, got, weights, *double):
            if not error <= allowed:  # NaN is wrong too
                wrong.append(f"{kind}: {what} is off by {error:.1e}, allowed {allowed:.1e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OPERATIONS)
def test_vmap_equals_a_loop(name):
    operation = OPERATIONS[name]
    kinds, stack = spectra(operation, (3, 3), jnp.complex128)
    outputs = jax.eval_shape(operation.outputs, stack[0])
    invariants = jax.eval_shape(operation.invariants, stack[0], *outputs)
    weights = tuple(random_like(20 + i, x) for i, x in enumerate(invariants))
    one = jax.value_and_grad(lambda a: loss(operation, weights, a, operation.outputs(a)))
    one_by_one = compiled(one)
    values, gradients = compiled(jax.vmap(one))(stack)
    for kind, a, value, gradient in zip(kinds, stack, values, gradients, strict=True):
        if kind in operation.undefined:
            continue
        expected = one_by_one(a)
        rtol = 1e-12 if kind == "generic" else 1e-6
        np.testing.assert_allclose(value, expected[0], atol=1e-12, rtol=0, err_msg=kind)
        size = max(np.linalg.norm(expected[1]), 1.0)
        np.testing.assert_allclose(gradient, expected[1], atol=rtol * size, rtol=0, err_msg=kind)
