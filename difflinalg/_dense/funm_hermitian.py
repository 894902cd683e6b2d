"""Functions of a Hermitian matrix, with derivatives of every order at any spectrum.

Value. `A = V diag(w) V^H`, `f(A) = V diag(f(w)) V^H`.

Rule. The k-th derivative of A -> f(A) in the directions E_1 .. E_k (Daleckii and Krein) is

    D_k(E_1, .., E_k) = V S V^H,
    S[i_0, i_k] = sum over permutations p, and over i_1 .. i_(k-1), of
                  F[w_i0, .., w_ik] E~_p1[i_0, i_1] .. E~_pk[i_(k-1), i_k],    E~ = V^H E V,

with F the divided differences of f. Neither V nor w is differentiated, so that repeated
eigenvalues are nothing special. The family is closed: with `D_(k,m)` the same for the m-th
derivative of f in directions c_1 .. c_m of the constants that f closes over,

    tangent of A           a_dot  adds a direction E_(k+1) = a_dot      -> D_(k+1,m)
    tangent of E_p         E_dot  takes the place of E_p                -> D_(k,m)
    tangent of constants   c_dot  adds a direction c_(m+1) = c_dot      -> D_(k,m+1)
    tangent of c_q         c_dot  takes the place of c_q                -> D_(k,m)

Transpose. `tr(E_0 D_(k,m)(E_1, .., E_k; c_1, .., c_m))` is symmetric in E_0 .. E_k and in
c_1 .. c_m (it is a derivative of the scalar `tr g(A)`, g' = f). With one argument left open it is
therefore a symmetric linear map, from matrices to matrices or from constants to constants, or one
of a pair of maps between them that are each other's transposes. `symmetric_map` tells JAX so. It
has to: JAX transposes the body of a custom_jvp function and forgets its rule, and does so too in
reverse mode through `lax.scan`. A linear solve keeps its rules, and everything is written as one.
"""

import functools
import itertools
import math
import string
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from difflinalg._core.algebra import HIGHEST, adjoint, herm, mm, real_diagonal
from difflinalg._core.checks import as_square, check_elementwise, refuse_nonfinite
from difflinalg._core.operation import operation
from difflinalg._core.program import Program, hoist
from difflinalg._dense.divided_differences import Elementwise, divided_difference

MATRIX, CONSTANTS = "matrix", "constants"  # the argument of the multilinear form left open


def funm_hermitian(
    a: ArrayLike, f: Callable[[Array], Any], *, symmetrize_input: bool = True
) -> Array:
    """Compute `f(A) = V diag(f(w)) V^H` for a Hermitian matrix `A = V diag(w) V^H`.

    Args:
        a: Hermitian, shape `(..., n, n)`, real or complex.
        f: a function of one real number with a real or complex value, written with JAX. It may
            close over arrays that are differentiated, batched or traced. It is called on scalars
            and must not depend on its neighbours; for one function per matrix use `jax.vmap`.
        symmetrize_input: replace `a` by `(a + a^H) / 2`. If false, `a` and its tangents are
            trusted to be Hermitian.

    Returns:
        `f(A)`, shape `(..., n, n)`; complex if `a` or the values of `f` are.

    Raises:
        ValueError: if `a` is not square, `f` of a scalar is not a scalar, or (outside jit and
            other transformations) `a` contains NaN or inf; under jit the result is NaN.
        TypeError: if `f` is not a function written with JAX.

    Derivatives:
        All orders, forward and reverse mode in any nesting, with respect to `a` and to what `f`
        closes over, exact to rounding at any spectrum: repeated, nearly repeated and distinct
        eigenvalues. Undefined only where `f` itself is not differentiable: on each pair of
        eigenvalues between them (order 1) and at each eigenvalue. `f` is evaluated at computed
        eigenvalues, which may leave its domain by a rounding error (`sqrt` of a singular matrix).

    Cost:
        One eigendecomposition. A derivative of order k adds products of n x n matrices and
        `n^(k+1)` divided differences, in time and memory; one of them takes about 9 evaluations
        of f' for k = 1 and 63 of f' and f'' for k = 2.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> trace_exp = lambda a: jnp.trace(funm_hermitian(a, jnp.exp))
        >>> print(jax.grad(trace_exp)(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), theorem 3.11 (Daleckii-Krein), section 3.2.
        Daleckii, "Differentiation of non-Hermitian matrix functions depending on a parameter"
        (1965), theorem 1: all orders.
        Kandolf, Koskela, Relton, Schweitzer, "Computing low-rank approximations of the Frechet
        derivative of a matrix function using Krylov subspace methods" (2021), section 2.
        de Boor, "Divided differences" (2005), section 12 (Hermite-Genocchi).
    """
    array = as_square("funm_hermitian", a)
    refuse_nonfinite("funm_hermitian", array)
    if symmetrize_input:
        array = herm(array)
    function, arguments = _hoist(f, jnp.finfo(array.dtype).dtype)
    return funm_core(array, arguments, function)


@operation(statics=1)
def funm_core(a: Array, arguments: "Arguments", function: "Function") -> Array:
    """`f(A)` of a Hermitian matrix, with what `f` closes over as `arguments`."""
    w, v = decompose(a)
    v = v.astype(jnp.result_type(a, function.dtype))
    form = _form(function, MATRIX, w, v, a, (), arguments, ())
    return jnp.swapaxes(form, -1, -2)


@functools.partial(funm_core.defjvp, symbolic_zeros=True)
def _funm_core_jvp(function, primals, tangents):
    (a, arguments), (a_dot, arguments_dot) = primals, tangents
    smooth_dot = arguments_dot.smooth
    moving = [i for i, c_dot in enumerate(smooth_dot) if c_dot is not None]

    def value(a, leaves):
        smooth = list(arguments.smooth)
        for i, leaf in zip(moving, leaves, strict=True):
            smooth[i] = leaf
        return _moving_value(function, a, Arguments(tuple(smooth), arguments.fixed))

    leaves, leaves_dot = ([x[i] for i in moving] for x in (arguments.smooth, smooth_dot))
    if a_dot is None:
        return jax.jvp(lambda leaves: value(a, leaves), (leaves,), (leaves_dot,))
    return jax.jvp(value, (a, leaves), (a_dot, leaves_dot))


def _moving_value(function: "Function", array: Array, arguments: "Arguments") -> Array:
    """`f(A)` as a function that JAX differentiates by the rule of this module."""
    w, v = decompose(array)
    dtype = jnp.result_type(array, function.dtype)
    # From here on every matrix has the dtype of the result, and every map is a square one.
    v, array = v.astype(dtype), array.astype(dtype)
    value = _form(function, MATRIX, w, v, array, (), lax.stop_gradient(arguments), ())
    moving = functools.partial(_moving_form, function, MATRIX)
    form = keep_rule(moving, (w, v, array, (), arguments, ()), value)
    return jnp.swapaxes(form, -1, -2)


class Arguments(NamedTuple):
    """What the function closed over: `smooth` can be differentiated, `fixed` cannot."""

    smooth: tuple[Array, ...]
    fixed: tuple[Array, ...]


class Function(NamedTuple):
    """The user's function on scalars, with what it closed over taken out."""

    program: Program
    is_smooth: tuple[bool, ...]
    dtype: Any  # of the value

    def call(self, x: Array, arguments: Arguments) -> Array:
        """The value at a scalar."""
        parts = [iter(arguments.fixed), iter(arguments.smooth)]
        consts = [next(parts[smooth]) for smooth in self.is_smooth]
        return jnp.asarray(self.program(consts, x)).astype(self.dtype)

    def on_array(self, x: Array, arguments: Arguments) -> Array:
        """The values at the entries of an array."""
        flat = jax.vmap(lambda scalar: self.call(scalar, arguments))(x.reshape(-1))
        return flat.reshape(x.shape)


def _hoist(f: Callable[[Array], Any], dtype) -> tuple[Function, Arguments]:
    """`f` as a function of all it closes over: a rule must see every traced value."""
    scalar = jax.ShapeDtypeStruct((), dtype)
    check_elementwise("funm_hermitian", f, scalar)
    program, consts = hoist(f, scalar)
    is_smooth = tuple(bool(jnp.issubdtype(c.dtype, jnp.inexact)) for c in consts)
    is_complex = jnp.issubdtype(program.out_avals[0].dtype, jnp.complexfloating)
    value_dtype = jnp.result_type(dtype, jnp.complex64) if is_complex else dtype
    arguments = Arguments(
        tuple(jnp.asarray(c) for c, s in zip(consts, is_smooth, strict=True) if s),
        tuple(c for c, s in zip(consts, is_smooth, strict=True) if not s),
    )
    return Function(program, is_smooth, jnp.dtype(value_dtype)), arguments


def decompose(a: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, not differentiated.

    A multiple of 1 larger than the rest is taken out before, for the digits of the rest; but it
    is not put into a matrix that has small eigenvalues of its own.
    """
    a = lax.stop_gradient(a)
    n = a.shape[-1]
    mean = jnp.sum(real_diagonal(a), axis=-1)[..., None] / max(n, 1)
    identity = jnp.eye(n, dtype=a.dtype)
    rest = jnp.linalg.norm(a - mean[..., None] * identity, axis=(-2, -1))[..., None]
    shift = jnp.where(rest < 0.5 * jnp.abs(mean), mean, 0.0)
    w, v = jnp.linalg.eigh(a - shift[..., None] * identity)
    return w + shift, v


def _form(function, open_slot, w, v, a, es, arguments, cs):
    """The multilinear form `tr(E_0 D_(k,m)(es; cs))` with one argument left open, a number.

    With E_0 open the result is the transpose of D_(k,m). With a constant open, E_0 is `es[0]`
    and the result has the structure of `arguments.smooth`.
    """
    del a
    if open_slot == MATRIX:
        return form_of_matrices(_table(function, w, len(es), arguments, cs), v, es)

    def pairing(c):
        table = _table(function, w, len(es) - 1, arguments, (*cs, c))
        return jnp.sum(es[0] * form_of_matrices(table, v, es[1:]))

    value, pullback = jax.vjp(pairing, jax.tree.map(jnp.zeros_like, arguments.smooth))
    return pullback(jnp.ones_like(value))[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _moving_form(function, open_slot, w, v, a, es, arguments, cs):
    """Zeros that move as `_form` does: for the matrix of a solve, which is not evaluated."""
    del function
    like = a if open_slot == MATRIX else arguments.smooth
    return zeros_of_all((w, v, a, es, arguments.smooth, cs), like)


@functools.partial(_moving_form.defjvp, symbolic_zeros=True)
def _moving_form_jvp(function, open_slot, primals, tangents):
    w, v, a, es, arguments, cs = primals
    _, _, a_dot, es_dot, arguments_dot, cs_dot = tangents
    zeros = _moving_form(function, open_slot, *primals)
    total = lax.stop_gradient(zeros)

    def add(slot, es, cs, x_dot):
        nonlocal total
        if not _is_zero(x_dot):
            point = (function, w, v, a, arguments)
            term = _insert(point, slot, open_slot, es, cs, _instantiate(x_dot))
            total = jax.tree.map(jnp.add, total, term)

    add(MATRIX, es, cs, a_dot)
    add(CONSTANTS, es, cs, arguments_dot.smooth)
    for p, e_dot in enumerate(es_dot):
        add(MATRIX, es[:p] + es[p + 1 :], cs, e_dot)
    for q, c_dot in enumerate(cs_dot):
        add(CONSTANTS, es, cs[:q] + cs[q + 1 :], c_dot)
    return zeros, total


def _insert(point, slot, open_slot, es, cs, x):
    """The form with `x` inserted in `slot`, a linear map of `x` that JAX transposes."""
    function, w, v, a, arguments = point

    def insert(form, slot, open_slot, z):
        directions = ((*es, z), cs) if slot == MATRIX else (es, (*cs, z))
        return form(function, open_slot, w, v, a, directions[0], arguments, directions[1])

    def moving(slot, open_slot):
        return functools.partial(insert, _moving_form, slot, open_slot)

    def fixed(slot, open_slot):
        return functools.partial(insert, _form, slot, open_slot)

    if slot == open_slot == MATRIX:
        # Once for all uses of the map, which are many in a higher derivative.
        table = _table(function, w, len(es) + 1, *lax.stop_gradient((arguments, cs)))

        def of_matrices(z):
            return form_of_matrices(table, v, (*es, z))

        return symmetric_map(moving(slot, slot), of_matrices, of_matrices, x)
    if slot == open_slot:
        return symmetric_map(moving(slot, slot), fixed(slot, slot), fixed(slot, slot), x)
    return linear_map(
        (moving(slot, open_slot), moving(open_slot, slot)),
        (fixed(slot, open_slot), fixed(open_slot, slot)),
        x,
    )


def keep_rule(moving: Callable[..., Any], inputs: tuple[Any, ...], value: Any) -> Any:
    """`value`, which moves as the custom_jvp function `moving` of `inputs`, in every nesting.

    Reverse mode through `lax.scan` makes JAX forget the rule of a custom_jvp function: its search
    for loop invariants is a partial evaluation, which keeps the body only. A linear solve is
    never taken apart. Where nothing is traced nothing moves, and the solve is left out.
    """
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(inputs)):
        return value
    value, unravel = ravel_pytree(lax.stop_gradient(value))

    def pair(n, z):
        return jnp.sum(n * z[1]), z[0] * n

    def moving_pair(z):
        return pair(ravel_pytree(moving(*inputs))[0], z)

    fixed_pair = functools.partial(pair, value)
    one = (jnp.ones((), value.dtype), jnp.zeros_like(value))
    return unravel(symmetric_map(moving_pair, fixed_pair, fixed_pair, one)[1])


def zeros_of_all(inputs, like):
    """Zeros like `like` that depend on all `inputs`, so that vmap gives them the axis of a rule."""
    zero = sum(jnp.where(False, jnp.sum(jnp.abs(x)), 0.0) for x in jax.tree.leaves(inputs))
    return jax.tree.map(lambda x: jnp.broadcast_to(zero, x.shape).astype(x.dtype), like)


def linear_map(moving, fixed, x):
    """`fixed[0](x)`, linear in `x`, with the transpose `fixed[1]`; both move as `moving` does."""

    def pair(maps):
        return lambda z: (maps[1](z[1]), maps[0](z[0]))

    def forward(z):
        return jax.tree.map(jnp.zeros_like, z[0]), fixed[0](z[0])

    def backward(z):
        return fixed[1](z[1]), jax.tree.map(jnp.zeros_like, z[1])

    like = jax.eval_shape(fixed[0], x)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    return symmetric_map(pair(moving), forward, backward, (x, zero))[1]


def symmetric_map(moving, forward, backward, x):
    """`forward(x)`, a linear map S with `S^T = S`, as JAX is to transpose and differentiate it.

    `(x, S x)` solves `(z, y) -> (y - S z, z) = (0, x)`, a linear equation with a symmetric matrix.
    JAX solves the same equation where it transposes, and where it differentiates it takes the
    derivative of S from the matrix, which it does not evaluate otherwise.
    """
    flat, unravel = ravel_pytree(x)

    def on_flat(step):
        return lambda z: ravel_pytree(step(unravel(z)))[0]

    def matrix(z):
        return jnp.stack([z[1] - on_flat(moving)(z[0]), z[0]])

    def solve_by(step):
        return lambda _, b: jnp.stack([b[1], b[0] + on_flat(step)(b[1])])

    # One array and not a tuple: JAX transposes a solve only if its right side is linear as a whole.
    b = jnp.stack([jnp.zeros_like(flat), flat])
    z = lax.custom_linear_solve(matrix, b, solve_by(forward), solve_by(backward), symmetric=True)
    return unravel(z[1])


def form_of_matrices(table: Array, v: Array, es: tuple[Array, ...]) -> Array:
    """The transpose of `D_k(es) = V S V^H` from the divided differences, `(..., n, .., n)`."""
    order = len(es)
    if order == 0:
        inner = v * table[..., None, :]
        return jnp.swapaxes(mm(inner, adjoint(v)), -1, -2)
    inner = [mm(adjoint(v), e, v) for e in es]
    letters = string.ascii_lowercase[: order + 1]
    pairs = [f"...{letters[p : p + 2]}" for p in range(order)]
    subscripts = f"...{letters},{','.join(pairs)}->...{letters[0]}{letters[-1]}"
    terms = [
        jnp.einsum(subscripts, table, *chain, precision=HIGHEST)
        for chain in itertools.permutations(inner)
    ]
    total = functools.reduce(jnp.add, terms)
    return jnp.swapaxes(mm(v, total, adjoint(v)), -1, -2)


def _table(function: Function, w: Array, order: int, arguments: Arguments, cs) -> Array:
    """`F[w_i0, .., w_ik]` of the derivative of f in the directions `cs` of its constants."""
    tuples, position = _multisets(w.shape[-1], order + 1)
    f, guide = _directional(function, arguments, cs), None
    if cs:
        # The decision between quotient and integral may not depend on cs, in which f is linear.
        guide = _directional(function, arguments, [_probe(arguments)] * len(cs))
    return divided_difference(f, w[..., tuples], guide)[..., position]


@functools.lru_cache(maxsize=8)
def _multisets(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending tuples of `size` indices below n, and where each n x .. x n entry finds its own.

    Divided differences are symmetric, so that one in `size!` has to be computed.
    """
    ascending = itertools.combinations_with_replacement(range(n), size)
    tuples = np.fromiter(itertools.chain.from_iterable(ascending), np.int32).reshape(-1, size)
    every = np.sort(np.indices((n,) * size), axis=0)
    keys = [np.ravel_multi_index(tuple(axes), (n,) * size) for axes in (tuples.T, every)]
    return tuples, np.searchsorted(keys[0], keys[1]).astype(np.int32)


def _directional(function: Function, arguments: Arguments, cs) -> Elementwise:
    """The mixed derivative of f in the directions `cs`, as an elementwise function of x."""

    def value(x, smooth):
        if x.size == 0:
            return x.astype(function.dtype)
        return function.on_array(x, Arguments(smooth, arguments.fixed))

    def along(g, c):
        return lambda x, smooth: jax.jvp(lambda s: g(x, s), (smooth,), (c,))[1]

    mixed = functools.reduce(along, cs, value)
    return lambda x: mixed(x, arguments.smooth)


def _probe(arguments: Arguments) -> tuple[Array, ...]:
    """A direction in which no component, and no simple difference of components, vanishes."""

    def pattern(leaf: Array) -> Array:
        return jnp.cos(jnp.arange(math.prod(leaf.shape))).reshape(leaf.shape).astype(leaf.dtype)

    return jax.tree.map(pattern, arguments.smooth)


def _is_zero(tangent) -> bool:
    leaves = jax.tree.leaves(tangent, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    return all(isinstance(leaf, SymbolicZero) for leaf in leaves)


def _instantiate(tangent):
    def dense(leaf):
        if isinstance(leaf, SymbolicZero):
            return jnp.zeros(leaf.shape, leaf.dtype)  # pyright: ignore[reportArgumentType]
        return jnp.asarray(leaf)

    return jax.tree.map(dense, tangent, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
