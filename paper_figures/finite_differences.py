"""Finite differences against automatic differentiation.

First panel: the error of a difference quotient of the truncated logistic map

    f(x) = 64 x (1 - x) (1 - 2x)^2 (1 - 8x + 8x^2)^2,    x = 0.2

falls with the step until rounding takes over (Baydin et al. 2018, JMLR 18, 153, figure 3). Second
panel: the same for the second derivative of the free energy of a small tensor renormalisation of
the Ising model, where rounding is divided by the square of the step. The references are the
derivatives at 50 digits of the very same functions.

    python -m paper_figures.finite_differences
"""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from paper_figures.common import Figure, Store, caption, example, shared_legend

POINT, COUPLING, CHI = 0.2, 0.44, 4
trg = example("ising_trg")


def logistic(x: Any) -> Any:
    """The fourth iterate of `4 x (1 - x)`, written out."""
    return 64 * x * (1 - x) * (1 - 2 * x) ** 2 * (1 - 8 * x + 8 * x * x) ** 2


def steps(count: int, smallest: float, largest: float) -> np.ndarray:
    """Powers of ten, evenly spaced on a logarithmic scale."""
    return np.logspace(np.log10(smallest), np.log10(largest), count)


def first_derivatives(h: np.ndarray) -> dict[str, Any]:
    """Absolute errors of the derivative of the logistic map."""
    with mpmath.workdps(50):
        exact = mpmath.diff(logistic, mpmath.mpf(POINT))

        def error(values: Any) -> list[float]:
            return [float(abs(mpmath.mpf(float(value)) - exact)) for value in values]

        def central(h: np.ndarray) -> np.ndarray:
            return (logistic(POINT + h) - logistic(POINT - h)) / (2 * h)

        x = jnp.asarray(POINT)
        return {
            "step": h,
            "forward difference": error((logistic(POINT + h) - logistic(POINT)) / h),
            "central difference": error(central(h)),
            "central, Richardson": error((4 * central(h / 2) - central(h)) / 3),
            "complex step": error(np.imag(logistic(POINT + 1j * h)) / h),
            "AD, forward": error([jax.jvp(logistic, (x,), (jnp.ones_like(x),))[1]])[0],
            "AD, reverse": error([jax.grad(logistic)(x)])[0],
            "exact": float(exact),
        }


def halves(matrix: np.ndarray, chi: int) -> tuple[np.ndarray, np.ndarray]:
    """`U sqrt(s)` and `sqrt(s) V`, without a multiplet that the truncation would cut."""
    u, s, v = mpmath.svd_r(mpmath.matrix(matrix.tolist()))
    s, keep = list(s), min(chi, len(s))
    tolerance = s[0] * 2.0 ** (-52 * 2 / 3)
    while 0 < keep < len(s) and s[keep - 1] - s[keep] < tolerance:
        keep -= 1
    root = np.array([mpmath.sqrt(value) for value in s[:keep]], object)
    left, right = (np.array(x.tolist(), object) for x in (u, v))
    return left[:, :keep] * root, root[:, None] * right[:keep]


def contract(*operands: Any) -> np.ndarray:
    """A chain of `tensordot`: pairs of a tensor and the axes that it shares with the product."""
    result = operands[0]
    for tensor, axes in operands[1:]:
        result = np.tensordot(result, tensor, axes)
    return result


def precise_free_energy(coupling: Any, chi: int, levels: int) -> Any:
    """`lnZ / N` as `examples/ising_trg.py` defines it, in the precision of mpmath."""
    c, s = mpmath.cosh(coupling), mpmath.sinh(coupling)
    weights = [2 * c * c, 2 * c * s, 2 * s * s]
    tensor = np.empty((2, 2, 2, 2), object)
    for legs in np.ndindex(2, 2, 2, 2):
        tensor[legs] = weights[sum(legs) // 2] if sum(legs) % 2 == 0 else mpmath.mpf(0)
    for _ in range(levels):
        a, b = tensor.shape[:2]
        left_up, right_down = halves(tensor.reshape(a * b, -1), chi)
        down_left, up_right = halves(tensor.transpose(1, 2, 3, 0).reshape(a * b, -1), chi)
        tensor = contract(
            right_down.reshape(-1, a, b),  # x s p
            (down_left.reshape(b, a, -1), (2, 0)),  # p q y
            (left_up.reshape(a, b, -1), (2, 0)),  # q r z, the product so far is x s q y
            (up_right.reshape(-1, b, a), ((1, 3), (2, 1))),  # w r s, so far x s y r z
        ).transpose(0, 3, 2, 1)
    return mpmath.log(np.einsum("abab->", tensor)) / 2**levels


def precise_second_derivative(levels: int) -> Any:
    """Of the free energy, at 50 digits: a difference whose error is below 1e-20."""
    with mpmath.workdps(50):
        k, h = mpmath.mpf(COUPLING), mpmath.mpf(10) ** -12
        low, middle, high = (precise_free_energy(k + i * h, CHI, levels) for i in (-1, 0, 1))
        return (low - 2 * middle + high) / h**2


def second_derivatives(h: np.ndarray, levels: int) -> dict[str, Any]:
    """Absolute errors of the second derivative of the free energy."""
    exact = precise_second_derivative(levels)

    def value(k: Any) -> Any:
        return trg.log_partition_per_site(trg.ising_tensor(k), CHI, levels)

    values = jax.jit(lambda ks: jax.lax.map(jax.value_and_grad(value), ks))
    offsets = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
    grid = COUPLING + h[:, None] * offsets
    f, slope = (np.asarray(x).reshape(grid.shape) for x in values(jnp.asarray(grid.ravel())))
    wide = (f[:, 0] - 2 * f[:, 2] + f[:, 4]) / h**2
    narrow = 4 * (f[:, 1] - 2 * f[:, 2] + f[:, 3]) / h**2
    _, _, heat = trg.thermodynamics(jnp.array([COUPLING]), CHI, levels)

    def error(values: Any) -> np.ndarray:
        return np.abs(np.asarray(values) - float(exact))

    return {
        "step": h,
        "forward difference": error((f[:, 2] - 2 * f[:, 4] + f[:, 5]) / h**2),
        "central difference": error(wide),
        "central, Richardson": error((4 * narrow - wide) / 3),
        "central difference of AD": error((slope[:, 4] - slope[:, 0]) / (2 * h)),
        "nested AD": float(error(heat[0] / COUPLING**2)),
        "exact": float(exact),
    }


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """Both panels."""
    count, levels = parameters["steps"], parameters["levels"]
    store.get("logistic map", lambda: first_derivatives(steps(count, 1e-17, 1e-1)))
    store.get("free energy", lambda: second_derivatives(steps(count, 1e-9, 1e-1), levels))


# Power of the step and sum of the weights of what a quotient is made of.
ROUNDING = {
    "forward difference": (2, 4),
    "central difference": (2, 4),
    "central, Richardson": (2, (4 * 16 + 4) / 3),
    "central difference of AD": (1, 1),
}


def rounding(at: str, results: dict[str, Any]) -> float:
    """Bound of the rounding of a quotient in the second panel: 16 units in the last place of 1.

    Values and slopes are of the order of one. Their last digits follow the order of operations of
    the program, and at small steps the error of a quotient consists of nothing else; at large
    steps this is far below the error.
    """
    panel, name, *index = at.split("/")[1:]
    if panel != "free energy" or name not in ROUNDING:
        return 0.0
    power, weights = ROUNDING[name]
    return 16 * np.finfo(float).eps * weights / results[panel]["step"][int(index[0])] ** power


STYLES = {
    "forward difference": dict(color="C1", marker="o"),
    "central difference": dict(color="C0", marker="s"),
    "central, Richardson": dict(color="C4", marker="^"),
    "complex step": dict(color="C2", marker="d"),
    "central difference of AD": dict(color="C2", marker="d"),
}


def plot(data: dict[str, Any]) -> Any:
    """Error against step for both functions."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.6), layout="constrained")
    floor = 2e-18
    for axis, rows in zip(axes, data["results"].values(), strict=True):
        for name, style in STYLES.items():
            if name in rows:
                error = np.maximum(np.array(rows[name], float), floor)
                axis.loglog(rows["step"], error, ms=3, lw=1, label=name, **style)
        for name, style in (("AD, forward", "--"), ("AD, reverse", ":"), ("nested AD", "-.")):
            if name in rows:
                axis.axhline(max(rows[name], floor), color="k", ls=style, lw=1.4, label=name)
        axis.set_xlabel("step h (dimensionless)")
    levels = data["parameters"]["levels"]
    axes[0].set_ylabel("absolute error of f'(0.2)")
    axes[0].set_title("f = fourth logistic iterate", fontsize=10)
    axes[1].set_ylabel("absolute error of d²(lnZ/N)/dK²")
    axes[1].set_title(
        f"lnZ/N of the Ising model, TRG, χ = {CHI}, $2^{{{levels}}}$ sites", fontsize=10
    )
    shared_legend(figure, 4)
    caption(
        figure,
        "Left: after Baydin et al. (2018), JMLR 18(153), figure 3. Right: K = 0.44, method of "
        "Levin and Nave (2007).\nReferences: the same functions at 50 digits. "
        "Errors of zero are drawn at 2e-18.",
    )
    return figure


FIGURE = Figure(
    "finite_differences",
    compute,
    plot,
    count=lambda _: 2,
    full={"steps": 65, "levels": 6, "seed": None},
    smoke={"steps": 9, "levels": 3, "seed": None},
    noise=rounding,
    libraries=("mpmath",),
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
