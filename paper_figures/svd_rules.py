"""What the terms of the derivative of a complex SVD are worth, and what broadening costs.

First panel: the derivative of `Re tr(W^H U V^H)` for the leading factors of a complex matrix, with
and without the gauge term (Wan and Zhang 2019, arXiv:1909.02659) and the truncation term (Francuz,
Schuch and Vanhecke 2025, arXiv:2311.11894), against the largest singular value that is dropped.
The reference is a difference quotient of the same loss at 50 digits.

Other panels: first and second derivative of `Re tr(W^H U sinh(S) V^H)`, which is smooth in the
matrix, against the gap of two singular values: `1 / gap` as it is (`jax.numpy.linalg.svd`),
Lorentzian broadening `gap / (gap^2 + 1e-12)` (Liao et al. 2019, arXiv:1903.09650, section III)
and values that are moved apart (`difflinalg.linalg.svd`). The reference is the exponential of a
block triangular matrix.

    python -m paper_figures.svd_rules
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from scipy.linalg import expm

from difflinalg import linalg
from paper_figures.common import Figure, Store, caption

SIZE, KEPT, BROADENING = 8, 3, 1e-12
TERMS = {
    "both terms": (True, True),
    "no gauge term": (False, True),
    "no truncation term": (True, False),
    "neither": (False, False),
}


def random_complex(rng: np.random.Generator) -> np.ndarray:
    """A complex square matrix of normal numbers."""
    return rng.standard_normal((SIZE, SIZE)) + 1j * rng.standard_normal((SIZE, SIZE))


def with_singular_values(
    values: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A complex matrix of these singular values, a direction and a weight."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(random_complex(rng))[0] for _ in range(2))
    return (u * values) @ v, random_complex(rng), random_complex(rng)


def truncated_rule(
    a: np.ndarray, a_dot: np.ndarray, weight: np.ndarray, gauge: bool, truncation: bool
) -> float:
    """The derivative along `a_dot` by the textbook formulas, with or without two of their terms."""
    u, s, vh = np.linalg.svd(a)
    v, s_1, s_2 = vh.conj().T, s[:KEPT], s[KEPT:, None]
    t = u.conj().T @ a_dot @ v
    t_11, t_21, t_12 = t[:KEPT, :KEPT], t[KEPT:, :KEPT], t[:KEPT, KEPT:].conj().T
    difference = s_1[None, :] - s_1[:, None] + np.eye(KEPT)
    even = (t_11 + t_11.conj().T) / 2 / difference * (1 - np.eye(KEPT))
    odd = (t_11 - t_11.conj().T) / 2 / (s_1[:, None] + s_1[None, :])
    if not gauge:
        odd = odd * (1 - np.eye(KEPT))
    dropped = s_2 if truncation else 0.0
    gap = s_1**2 - dropped**2
    x = (s_1 * t_21 + dropped * t_12) / gap
    y = (s_1 * t_12 + dropped * t_21) / gap
    u_dot = u @ np.concatenate([even + odd, x])
    v_dot = v @ np.concatenate([even - odd, y])
    product = u_dot @ vh[:KEPT] + u[:, :KEPT] @ v_dot.conj().T
    return float(np.real(np.sum(weight.conj() * product)))


def precise_slope(a: np.ndarray, a_dot: np.ndarray, weight: np.ndarray) -> float:
    """The same derivative by a central difference at 50 digits."""
    with mpmath.workdps(50):
        base, along = (mpmath.matrix(x.tolist()) for x in (a, a_dot))
        h = mpmath.mpf(10) ** -15

        def loss(shift: Any) -> Any:
            u, _, v = mpmath.svd_c(base + shift * along)
            product = u[:, :KEPT] * v[:KEPT, :]
            return mpmath.fsum(
                mpmath.re(complex(weight[i, j]).conjugate() * product[i, j])
                for i, j in np.ndindex(SIZE, SIZE)
            )

        return float((loss(h) - loss(-h)) / (2 * h))


@jax.jit
def library_slope(a: jax.Array, a_dot: jax.Array, weight: jax.Array) -> jax.Array:
    """The same derivative by reverse mode through `svd_trunc`."""

    def loss(a: jax.Array) -> jax.Array:
        u, _, vh, _ = linalg.svd_trunc(a, KEPT)
        return jnp.real(jnp.sum(weight.conj() * (u @ vh)))

    return jnp.real(jnp.sum(jax.grad(loss)(a) * a_dot))


def truncation_errors(ratio: float, seeds: list[int]) -> dict[str, float]:
    """The largest relative error of each rule over the seeds."""
    values = np.array([3.0, 2.0, 1.2, *(1.2 * ratio * np.array([1.0, 0.6, 0.3, 0.1, 0.05]))])
    errors: dict[str, float] = {}
    for seed in seeds:
        matrices = with_singular_values(values, seed)
        exact = precise_slope(*matrices)
        got = {name: truncated_rule(*matrices, *terms) for name, terms in TERMS.items()}
        got["svd_trunc"] = float(library_slope(*map(jnp.asarray, matrices)))
        for name, value in got.items():
            errors[name] = max(errors.get(name, 0.0), abs(value / exact - 1.0))
    return errors


@jax.custom_jvp
def broadened_svd(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The SVD of a square matrix whose rule broadens the gaps."""
    u, s, vh = jnp.linalg.svd(a)
    return u, s, vh


@broadened_svd.defjvp
def _broadened_svd_jvp(primals: Any, tangents: Any) -> Any:
    u, s, vh = broadened_svd(*primals)
    t = u.conj().T @ tangents[0] @ vh.conj().T
    gap, total = s[None, :] - s[:, None], s[None, :] + s[:, None]
    even = gap / (gap**2 + BROADENING) * (t + t.conj().T) / 2
    odd = total / (total**2 + BROADENING) * (t - t.conj().T) / 2
    return (u, s, vh), (u @ (even + odd), jnp.real(jnp.diag(t)), (odd - even) @ vh)


RULES: dict[str, Callable] = {
    "1 / gap": jnp.linalg.svd,
    "broadened": broadened_svd,
    "moved apart": linalg.svd,
}


@partial(jax.jit, static_argnums=3)
def smooth_derivatives(a: jax.Array, a_dot: jax.Array, weight: jax.Array, rule: str) -> jax.Array:
    """First derivative of the smooth loss along `a_dot`, and the second by nested forward mode.

    Two calls: the first derivative of a function that is differentiated twice is another number
    where values are moved apart, because they are moved further.
    """

    def loss(shift: jax.Array) -> jax.Array:
        u, s, vh = RULES[rule](a + shift * a_dot)
        return jnp.real(jnp.sum(weight.conj() * ((u * jnp.sinh(s)) @ vh)))

    def slope(shift: jax.Array) -> jax.Array:
        return jax.jvp(loss, (shift,), (jnp.ones_like(shift),))[1]

    zero = jnp.zeros(())
    return jnp.stack([slope(zero), jax.jvp(slope, (zero,), (jnp.ones_like(zero),))[1]])


def exact_derivatives(a: np.ndarray, a_dot: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The same from `sinh` of a Hermitian matrix that holds `A` twice."""

    def hermitian(x: np.ndarray) -> np.ndarray:
        zero = np.zeros_like(x)
        return np.block([[zero, x], [x.conj().T, zero]])

    block = np.kron(np.eye(3), hermitian(a)) + np.kron(np.eye(3, k=1), hermitian(a_dot))
    sinh = (expm(block) - expm(-block)) / 2
    n = 2 * SIZE
    return np.array([
        factor * np.real(np.sum(weight.conj() * sinh[:SIZE, k * n + SIZE : (k + 1) * n]))
        for k, factor in ((1, 1.0), (2, 2.0))
    ])  # fmt: skip


def gap_errors(rule: str, gaps: np.ndarray, seed: int) -> list[Any]:
    """Relative errors of both derivatives for each gap, shape `(gaps, 2)`."""
    rows = []
    for gap in gaps:
        values = np.array([2.0 + gap, 2.0, 1.3, 1.0, 0.8, 0.6, 0.4, 0.2])
        matrices = with_singular_values(values, seed)
        got = np.asarray(smooth_derivatives(*map(jnp.asarray, matrices), rule))
        rows.append(np.abs(got / exact_derivatives(*matrices) - 1.0))
    return rows


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """Ratios of the truncation one by one, then all gaps for each rule."""
    for ratio in parameters["ratios"]:
        store.get(f"ratio {ratio:g}", lambda r=ratio: truncation_errors(r, parameters["seeds"]))
    gaps = np.array(parameters["gaps"])
    for rule in RULES:
        store.get(rule, lambda rule=rule: gap_errors(rule, gaps, parameters["seeds"][0]))


FLOOR = 3e-17


def plot(data: dict[str, Any]) -> Any:
    """Terms of the rule on the left, first and second derivative against the gap beside."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    figure, axes = plt.subplots(1, 3, figsize=(10.0, 4.2), layout="constrained")
    styles = {"neither": "C1v--", "no gauge term": "C3s-", "no truncation term": "C0^-",
              "svd_trunc": "C2o-"}  # fmt: skip
    for name, style in styles.items():
        errors = [max(results[f"ratio {r:g}"][name], FLOOR) for r in parameters["ratios"]]
        label = "difflinalg svd_trunc: both" if name == "svd_trunc" else name
        axes[0].loglog(parameters["ratios"], errors, style, ms=4, lw=1, label=label)
    axes[0].set_xlabel("dropped / smallest kept singular value")
    axes[0].set_ylabel("relative error of the derivative")
    axes[0].set_title(f"truncated SVD, {KEPT} of {SIZE}, complex", fontsize=10)
    labels = {"1 / gap": ("C3s-", "1/gap (jnp.linalg.svd)"),
              "broadened": ("C0^-", "Lorentzian, 1e-12"),
              "moved apart": ("C2o-", "difflinalg: moved apart")}  # fmt: skip
    for order, axis in enumerate(axes[1:]):
        for rule, (style, label) in labels.items():
            errors = np.array([row[order] for row in results[rule]], float)
            axis.loglog(
                parameters["gaps"], np.maximum(errors, FLOOR), style, ms=3, lw=1, label=label
            )
        axis.set_xlabel("gap of two singular values near 2")
        axis.set_title(("first", "second")[order] + " derivative, smooth loss", fontsize=10)
    for axis in axes:
        axis.legend(loc="best")
    caption(
        figure,
        "Left: terms of Wan and Zhang (2019), arXiv:1909.02659, and Francuz et al. (2025), "
        "arXiv:2311.11894; reference: difference quotient at 50 digits, worst of "
        f"{len(parameters['seeds'])} matrices.\nMiddle, right: broadening of Liao et al. (2019), "
        "arXiv:1903.09650; reference: exponential of a block matrix. Points that are missing are "
        "not finite. All quantities dimensionless.",
    )
    return figure


def rounding(at: str, _: dict[str, Any]) -> float:
    """The bound of the rounding error at a gap, which values that are moved apart show.

    That of a decomposition is `n eps`. The first derivative divides it by the gap, which is at
    least `eps^(1/2)` once it is moved (below `eps^(3/4)`); the second by the square of the gap, at
    least `eps^(1/3)`.
    """
    rule, *place = at.split("/")[1:]
    if rule != "moved apart":
        return 0.0
    eps, gap = 2.0**-52, FIGURE.full["gaps"][int(place[0])]
    if place[1] == "0":
        return SIZE * eps / (gap if gap > eps**0.75 else eps**0.5)
    return SIZE * eps / max(gap, eps ** (1.0 / 3.0)) ** 2


FIGURE = Figure(
    "svd_rules",
    compute,
    plot,
    count=lambda parameters: len(parameters["ratios"]) + len(RULES),
    full={
        "ratios": [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 0.6, 0.9, 0.99],
        "gaps": [10.0 ** (-k / 2) for k in range(34, 0, -1)],
        "seeds": [1, 2, 3],
    },
    smoke={"ratios": [1e-3, 0.5], "gaps": [1e-16, 1e-7, 1e-3, 0.1], "seeds": [1, 2, 3]},
    libraries=("mpmath",),
    noise=rounding,
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
