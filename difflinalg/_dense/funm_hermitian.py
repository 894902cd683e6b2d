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
c_1 .. c_m (it is a derivative of the scalar `tr g(A)`, g' = f). With one argument left open and
another one singled out it is therefore a linear map, from matrices or constants to matrices or
constants, whose transpose is the same with the two exchanged. The operation `inserted` is that map;
its derivatives are maps of the same kind.
"""

import functools
import itertools
import string
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from difflinalg._core.algebra import HIGHEST, adjoint, herm, mm, real_diagonal
from difflinalg._core.checks import as_square, refuse_nonfinite
from difflinalg._core.dense_checks import check_elementwise
from difflinalg._core.linear_operation import LinearOperation
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
    return funm_core(array, arguments, function)[0]


@operation(statics=1)
def funm_core(a: Array, arguments: "Arguments", function: "Function") -> tuple[Array, Array, Array]:
    """`f(A)` with what `f` closes over as `arguments`; eigenvalues and vectors, constants."""
    w, v = decompose(a)
    v = v.astype(jnp.result_type(a, function.dtype))
    form = _form(function, MATRIX, w, v, (), arguments, ())
    return jnp.swapaxes(form, -1, -2), w, v


@functools.partial(funm_core.defjvp, symbolic_zeros=True)
def _funm_core_jvp(function, primals, tangents):
    (a, arguments), (a_dot, arguments_dot) = primals, tangents
    value, w, v = funm_core(a, arguments, function)
    w, v = lax.stop_gradient((w, v))
    # From here on every matrix has the dtype of the result, and every map is a square one.
    point = w, v, a.astype(v.dtype)
    moves = [(MATRIX, (), (), None if a_dot is None else a_dot.astype(v.dtype))]
    moves.append((CONSTANTS, (), (), _direction(arguments.smooth, arguments_dot.smooth)))
    form_dot = _sum_of_moves(function, MATRIX, point, arguments, moves)
    constants = jnp.zeros_like(w), jnp.zeros_like(v)
    return (value, w, v), (jnp.swapaxes(form_dot, -1, -2), *constants)


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


def _form(function, open_slot, w, v, es, arguments, cs):
    """The multilinear form `tr(E_0 D_(k,m)(es; cs))` with one argument left open, a number.

    With E_0 open the result is the transpose of D_(k,m). With a constant open, E_0 is `es[0]`
    and the result is a vector of all constants, as the directions `cs` are.
    """
    if open_slot == MATRIX:
        return form_of_matrices(_table(function, w, len(es), arguments, cs), v, es)

    def pairing(c):
        table = _table(function, w, len(es) - 1, arguments, (*cs, c))
        return jnp.sum(es[0] * form_of_matrices(table, v, es[1:]))

    value, pullback = jax.vjp(pairing, jnp.zeros_like(ravel_pytree(arguments.smooth)[0]))
    return pullback(jnp.ones_like(value))[0]


def _inserted(w, v, a, es, arguments, cs, x, function, slot, open_slot):
    """The form with `x` inserted in `slot`, linear in `x`; `a` is there for its tangent alone."""
    del a
    es, cs = _joined(es, cs, slot, x)
    return _form(function, open_slot, w, v, es, arguments, cs)


inserted = LinearOperation(_inserted, statics=3)


@inserted.deftranspose
def _inserted_transpose(function, slot, open_slot, *others_and_cotangent):
    return inserted(*others_and_cotangent, function, open_slot, slot)


@functools.partial(inserted.defjvp, symbolic_zeros=True)
def _inserted_jvp(function, slot, open_slot, primals, tangents):
    w, v, a, es, arguments, cs, x = primals
    _, _, a_dot, es_dot, arguments_dot, cs_dot, x_dot = tangents
    moves = [(slot, es, cs, x_dot)]
    es, cs = _joined(es, cs, slot, x)
    moves.append((MATRIX, es, cs, a_dot))
    moves.append((CONSTANTS, es, cs, _direction(arguments.smooth, arguments_dot.smooth)))
    for p, e_dot in enumerate(es_dot):
        moves.append((MATRIX, es[:p] + es[p + 1 :], cs, e_dot))
    for q, c_dot in enumerate(cs_dot):
        moves.append((CONSTANTS, es, cs[:q] + cs[q + 1 :], c_dot))
    value = inserted(*primals, function, slot, open_slot)
    return value, _sum_of_moves(function, open_slot, (w, v, a), arguments, moves)


def _joined(es, cs, slot, x):
    """The directions together with `x`."""
    return ((*es, x), cs) if slot == MATRIX else (es, (*cs, x))


def _direction(smooth, smooth_dot):
    """The tangents of all constants in one vector, None if none of them moves."""
    if all(x_dot is None for x_dot in smooth_dot):
        return None
    pairs = zip(smooth, smooth_dot, strict=True)
    return ravel_pytree([jnp.zeros_like(x) if d is None else d for x, d in pairs])[0]


def _sum_of_moves(function, open_slot, point, arguments, moves):
    """The tangent of a form: the sum of its insertions, of those directions that move."""
    terms = [
        inserted(*point, es, arguments, cs, x_dot, function, slot, open_slot)
        for slot, es, cs, x_dot in moves
        if x_dot is not None
    ]
    return functools.reduce(jnp.add, terms)


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
        return lambda x, smooth: jax.jvp(lambda s: g(x, s), (smooth,), (unravel(c),))[1]

    unravel = ravel_pytree(arguments.smooth)[1]
    mixed = functools.reduce(along, cs, value)
    return lambda x: mixed(x, arguments.smooth)


def _probe(arguments: Arguments) -> Array:
    """A direction in which no component, and no simple difference of components, vanishes."""
    constants = ravel_pytree(arguments.smooth)[0]
    return jnp.cos(jnp.arange(constants.size)).astype(constants.dtype)
