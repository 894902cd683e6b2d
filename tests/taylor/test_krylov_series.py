"""Series of a few eigenpairs and singular triplets of an operator, against dense series."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from oracles import adjoint, close, herm, identity, random_series, times, with_spectrum

from difflinalg.scipy.sparse.linalg import eigsh, svds
from difflinalg.taylor import jet

N, K, PAIRS = 40, 4, 3


def coefficients(f, *series):
    """The coefficients of `f` of series, through `jet`."""

    @jax.jit
    def run(*series):
        firsts, rests = [x[0] for x in series], [list(x[1:]) for x in series]
        value, terms = jet(f, firsts, rests, factorial_scaled=False)
        return jax.tree.map(lambda x, own: jnp.stack([x, *own]), value, terms)

    return [np.asarray(x) for x in run(*series)]


def check_pairs(a, m, w, v):
    """`A V = M V D` with `D = V^H A V`, and `V^H M V = I`, order by order."""
    core = times(adjoint(v), a, v)
    image = times(m, v)
    close(times(a, v), times(image, core), 1e-9)
    close(times(adjoint(v), image), identity(K, v.shape[-1]), 1e-10)
    close(w, np.einsum("kii->ki", core).real, 1e-9)


def hermitian(seed, w, dtype=float):
    a = 0.1 * herm(random_series(seed, K, (N, N), dtype))
    a[0] = with_spectrum(seed, [*w, *np.linspace(1.0, 2.0, N - len(w))], dtype)
    return a


def test_eigsh_of_arrays_with_distinct_and_equal_values():
    for w, dtype in (([-3.0, -2.0, -1.0], complex), ([-2.0, -2.0, -1.0], float)):
        a = hermitian(1, w, dtype)
        found = coefficients(lambda a: eigsh(a, PAIRS, which="SA", ncv=20), a)
        check_pairs(a, identity(K, N), *found)


def test_eigsh_of_a_function_with_a_metric_that_moves_too():
    a = hermitian(2, [-3.0, -2.0, -1.0])
    m = 0.1 * herm(random_series(3, K, (N, N)))
    m[0] = with_spectrum(4, np.linspace(1.0, 2.0, N))

    def pairs(a, m):
        like = jax.ShapeDtypeStruct((N,), a.dtype)
        return eigsh(lambda x: a @ x, PAIRS, m, which="SA", v0=like, ncv=20)

    w, v = coefficients(pairs, a, m)
    check_pairs(a, m, w, v)
    np.testing.assert_allclose(w[0], scipy.linalg.eigh(a[0], m[0])[0][:PAIRS], atol=1e-10)


def test_svds_agrees_with_the_dense_truncation():
    a = 0.1 * random_series(5, K, (30, 20))
    u, _, vh = np.linalg.svd(a[0], full_matrices=False)
    a[0] = (u * np.array([3.0, 2.0, *np.linspace(1.0, 0.1, 18)])) @ vh
    u, s, vh = coefficients(lambda a: svds(a, 2), a)
    v = adjoint(vh)
    close(times(a, v), times(u, s[:, None, :] * np.eye(2)), 1e-9)
    close(times(adjoint(a), u), times(v, s[:, None, :] * np.eye(2)), 1e-9)
    close(times(adjoint(u), u), identity(K, 2), 1e-10)
