"""Expression swell: symbolic derivatives against automatic differentiation.

The derivative of the logistic iterate `l_1 = x, l_{n+1} = 4 l_n (1 - l_n)` as an expression, by
SymPy, grows exponentially with `n`; the program that AD derives grows linearly (Baydin et al.
2018, JMLR 18, 153, table 1). Sharing the common parts of the expression takes most of the
difference away (Laue 2019, arXiv:1904.02990). Beside it the forward and the reverse trace of

    y = ln(x1) + x1 x2 - sin(x2)    at (2, 5)

as in their tables 2 and 3, read off the jaxpr of the program and evaluated equation by equation.

    python -m paper_figures.expression_swell
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import sympy
from jax import lax

from paper_figures.common import Figure, Store, caption

POINT = (2.0, 5.0)
ARITHMETIC = {"add", "add_any", "sub", "mul", "div", "neg", "pow", "integer_pow", "square"}
SERIES = ("symbolic", "symbolic, Horner form", "symbolic, shared parts", "AD, forward",
          "AD, reverse", "function alone")  # fmt: skip


def iterate(x: Any, n: int) -> Any:
    """`l_n(x)`."""
    for _ in range(n - 1):
        x = 4 * x * (1 - x)
    return x


def arithmetic(function: Callable) -> int:
    """Additions, products and the like in the jaxpr of a function of one number."""
    equations = jax.make_jaxpr(function)(0.3).jaxpr.eqns
    return sum(equation.primitive.name in ARITHMETIC for equation in equations)


def operations(n: int) -> dict[str, int]:
    """Operations of `l_n` and, by each method, of its derivative."""
    x = sympy.Symbol("x")
    derivative = sympy.diff(iterate(x, n), x)
    parts, rest = sympy.cse(derivative)
    shared = sum(int(sympy.count_ops(part)) for _, part in parts) + int(sympy.count_ops(rest))
    polynomial = sympy.Poly(iterate(sympy.Poly(x, x), n).as_expr(), x).diff()
    counts = (
        int(sympy.count_ops(derivative)),
        int(sympy.count_ops(sympy.horner(polynomial))),
        shared,
        arithmetic(lambda x: jax.jvp(lambda x: iterate(x, n), (x,), (jnp.ones_like(x),))),
        arithmetic(jax.value_and_grad(lambda x: iterate(x, n))),
        arithmetic(lambda x: iterate(x, n)),
    )
    return dict(zip(SERIES, counts, strict=True))


def traced(x1: Any, x2: Any) -> Any:
    """The function of tables 2 and 3."""
    return lax.log(x1) + x1 * x2 - lax.sin(x2)


class Trace:
    """The equations of a program in its order, with values, tangents and adjoints.

    Inputs are named `x1, x2, ...`, results `v1, v2, ...` in the order of the jaxpr.
    """

    def __init__(self, function: Callable, point: tuple[float, ...]) -> None:
        jaxpr = jax.make_jaxpr(function)(*point).jaxpr
        self.equations, (self.result,) = jaxpr.eqns, jaxpr.outvars
        self.names = {var: f"x{i + 1}" for i, var in enumerate(jaxpr.invars)}
        self.names |= {equation.outvars[0]: f"v{i + 1}" for i, equation in enumerate(jaxpr.eqns)}
        self.inputs = jaxpr.invars
        self.values = dict(zip(jaxpr.invars, map(jnp.asarray, point), strict=True))
        for equation in self.equations:
            self.values[equation.outvars[0]] = self.bound(equation)(*self.operands(equation))

    @staticmethod
    def bound(equation: Any) -> Callable:
        """The function that an equation applies."""
        return lambda *operands: equation.primitive.bind(*operands, **equation.params)

    def operands(self, equation: Any) -> list[Any]:
        """The values that an equation reads."""
        return [self.values[var] for var in equation.invars]

    def text(self, equation: Any) -> str:
        """An equation in words."""
        return f"{equation.primitive.name} {' '.join(self.names[v] for v in equation.invars)}"

    def forward(self, direction: int) -> list[list[Any]]:
        """Rows of name, equation, value and tangent along one input."""
        tangents = {v: jnp.asarray(float(i == direction)) for i, v in enumerate(self.inputs)}
        rows = [[self.names[v], "", self.values[v], tangents[v]] for v in self.inputs]
        for equation in self.equations:
            out = equation.outvars[0]
            along = [tangents[v] for v in equation.invars]
            _, tangents[out] = jax.jvp(self.bound(equation), self.operands(equation), along)
            rows.append([self.names[out], self.text(equation), self.values[out], tangents[out]])
        return rows

    def reverse(self) -> list[list[Any]]:
        """Rows of adjoint, what it is made of and its value, from the result to the inputs."""
        adjoints, parts = {self.result: jnp.asarray(1.0)}, {self.result: ["1"]}
        rows = []
        for equation in reversed(self.equations):
            out = equation.outvars[0]
            rows.append([self.names[out], " + ".join(parts[out]), adjoints[out]])
            _, pullback = jax.vjp(self.bound(equation), *self.operands(equation))
            for var, share in zip(equation.invars, pullback(adjoints[out]), strict=True):
                adjoints[var] = adjoints.get(var, 0.0) + share
                parts.setdefault(var, []).append(
                    f"{self.names[out]}' d{self.names[out]}/d{self.names[var]}"
                )
        return rows + [[self.names[v], " + ".join(parts[v]), adjoints[v]] for v in self.inputs]


def traces() -> dict[str, Any]:
    """Both traces of the function of two variables."""
    trace = Trace(traced, POINT)
    return {"forward": trace.forward(0), "reverse": trace.reverse()}


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """Counts for each iterate, then the traces."""
    for n in range(1, parameters["iterates"] + 1):
        store.get(f"n = {n}", lambda n=n: operations(n))
    store.get("traces", traces)


def table(rows: dict[str, Any]) -> str:
    """The traces as text."""
    lines = ["FORWARD, along x1", f"{'':3s} {'':11s} {'value':>9s} {'tangent':>9s}"]
    lines += [f"{name:3s} {text:11s} {v:9.4f} {t:9.4f}" for name, text, v, t in rows["forward"]]
    lines += ["", "REVERSE, v' is the adjoint of v"]
    lines += [
        f"{name + chr(39):3s} {text:27s} {value:9.4f}" for name, text, value in rows["reverse"]
    ]
    return "\n".join(lines)


def plot(data: dict[str, Any]) -> Any:
    """Counts on the left, traces on the right."""
    import matplotlib.pyplot as plt

    figure, (axis, text) = plt.subplots(
        1, 2, figsize=(9.0, 4.6), layout="constrained", width_ratios=(1.15, 1.0)
    )
    results = dict(data["results"])
    trace = results.pop("traces")
    n = [int(name.split()[-1]) for name in results]
    styles = zip(SERIES, ("C3o-", "C1s-", "C4^-", "C0d-", "C2v--", "k.:"), strict=True)
    for name, style in styles:
        counts = [max(row[name], 0.5) for row in results.values()]
        axis.semilogy(n, counts, style, ms=4, lw=3 if name == "AD, forward" else 1, label=name)
    axis.set_xlabel("iterate n of $l_{n+1} = 4 l_n (1 - l_n)$")
    axis.set_ylabel("operations of $dl_n/dx$ (number; 0 drawn at 0.5)")
    axis.legend()
    text.axis("off")
    text.set_title("y = ln x1 + x1 x2 - sin x2  at (2, 5)", fontsize=10, loc="left")
    text.text(0.0, 0.98, table(trace), family="monospace", fontsize=8.4, va="top",
              transform=text.transAxes)  # fmt: skip
    caption(
        figure,
        "After Baydin et al. (2018), JMLR 18(153), tables 1 to 3; shared parts: Laue (2019), "
        "arXiv:1904.02990.\nAD counts contain the function itself and are those of the jaxpr, "
        "from which the traces are printed too.",
    )
    return figure


FIGURE = Figure(
    "expression_swell",
    compute,
    plot,
    count=lambda parameters: parameters["iterates"] + 1,
    full={"iterates": 8, "seed": None},
    smoke={"iterates": 4, "seed": None},
    libraries=("sympy",),
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
