"""Oracles for series of matrices: the block Toeplitz matrix, and sums written out."""

import numpy as np
import scipy.linalg


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def herm(x):
    return (x + adjoint(x)) / 2


def times(*series):
    """The product of series of matrices, `(K + 1, m, n)`, by its definition."""
    result = np.asarray(series[0])
    for x in map(np.asarray, series[1:]):
        orders = range(len(result))
        result = np.stack([sum(result[j] @ x[k - j] for j in range(k + 1)) for k in orders])
    return result


def diagonal(w):
    """Diagonal matrices from a series of diagonals."""
    w = np.asarray(w)
    return w[..., None, :] * np.eye(w.shape[-1])


def identity(order, n):
    return np.concatenate([np.eye(n)[None], np.zeros((order, n, n))])


def toeplitz(a):
    """The block upper triangular Toeplitz matrix, of which `f(T)` has the first row `f(A)[k]`."""
    k, n = len(a), a.shape[-1]
    blocks = [[a[j - i] if j >= i else np.zeros_like(a[0]) for j in range(k)] for i in range(k)]
    return np.block(blocks) if k * n else np.zeros((0, 0))


def function_series(a, f=scipy.linalg.expm):
    """The series of `f(A(t))` from the block Toeplitz matrix."""
    n, first = a.shape[-1], f(toeplitz(np.asarray(a)))
    return np.stack([first[:n, k * n : (k + 1) * n] for k in range(len(a))])


def exp_scalar(w):
    """The series of `exp(w(t))`, elementwise."""
    w = np.asarray(w)
    e = [np.exp(w[0])]
    for k in range(1, len(w)):
        e.append(sum(j * w[j] * e[k - j] for j in range(1, k + 1)) / k)
    return np.stack(e)


def random_series(seed, order, shape, dtype=float):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(order + 1, *shape))
    return x + 1j * rng.normal(size=x.shape) if dtype is complex else x


def with_spectrum(seed, w, dtype=float):
    """A Hermitian matrix with these eigenvalues."""
    q = np.linalg.qr(random_series(seed, 0, (len(w), len(w)), dtype)[0])[0]
    return (q * np.asarray(w)) @ adjoint(q)


def close(got, expected, rtol):
    """Each order agrees, relative to its largest entry or to that of the whole series."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got)), got
    axes = tuple(range(1, expected.ndim))
    error = np.max(np.abs(got - expected), axis=axes, initial=0.0)
    scale = np.max(np.abs(expected), axis=axes, initial=0.0)
    assert np.all(error <= rtol * np.maximum(scale, 1e-3 * np.max(scale, initial=0.0))), error
