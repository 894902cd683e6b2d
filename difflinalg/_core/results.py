"""Named tuples that the decompositions return; fields are named as in `jax.numpy.linalg`."""

from typing import Any, NamedTuple

from jax import Array


class SVDResult(NamedTuple):
    """`A = U diag(S) Vh`."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """`A = V diag(w) V^H` with `w = eigenvalues` and `V = eigenvectors`."""

    eigenvalues: Array
    eigenvectors: Array


class EigenInfo(NamedTuple):
    """How a truncated eigensolver ended."""

    converged: Array  # whether all pairs have
    residual_norms: Array  # (k,), of A v - w M v, recomputed
    products: Array  # how often the operator was applied to a vector
    restarts: Array
    gap: Array  # from the values found to the next one; sets the condition of a derivative
    norm: Array  # an estimate of the norm of the operator
    cut: Array  # whether a multiplet was cut: then the derivative of its vectors is NaN
    hermitian_defect: Array  # departure of the operator from its adjoint, relative to the norm


class GeneralEigenInfo(NamedTuple):
    """How a truncated eigensolver of a general operator ended."""

    converged: Array  # whether all pairs have
    residual_norms: Array  # (k,), of A v - w M v, recomputed, with |v| = 1
    products: Array  # how often the operator or its adjoint was applied to a vector
    restarts: Array
    gap: Array  # from the values found to the nearest other one that is known
    norm: Array  # an estimate of the norm of the operator
    cut: Array  # whether a multiplet was cut: then the derivative is NaN
    condition: Array  # (k,), |l| |r| / |l^H M r|; NaN where left vectors were not computed


class SlogdetResult(NamedTuple):
    """`det(A) = sign exp(logabsdet)`."""

    sign: Array
    logabsdet: Array


class QRResult(NamedTuple):
    """`A = Q R`."""

    Q: Array
    R: Array


class LQResult(NamedTuple):
    """`A = L Q`."""

    L: Array
    Q: Array


class EigResult(NamedTuple):
    """`A V = V diag(w)` with `w = eigenvalues` and `V = eigenvectors`."""

    eigenvalues: Array
    eigenvectors: Array


class EigLeftResult(NamedTuple):
    """`A V = V diag(w)` and `L^H A = diag(w) L^H` with `L = left_eigenvectors`."""

    eigenvalues: Array
    left_eigenvectors: Array
    eigenvectors: Array


class LsmrResult(NamedTuple):
    """What `lsmr` found, named as in SciPy."""

    x: Any  # like the vectors that the operator acts on
    istop: Array  # 0: x = 0; 1: A x = b; 2: least squares; 4, 5: the same, to rounding; else failed
    itn: Array  # steps
    normr: Array  # |b - A x|, with the damped part
    normar: Array  # |A^H (b - A x)|
    norma: Array  # estimate of the Frobenius norm of A
    conda: Array  # estimate of the condition number of A
    normx: Array


class FunctionInfo(NamedTuple):
    """How the product of a function of an operator and vectors was found."""

    converged: Array
    error: Array  # an estimate, relative to the norm of the result
    products: Array  # how often the operator was applied to a vector
