"""Plain forward sensitivities, also where a cotangent is asked for."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import checks
from difflinalg._ode.adjoints import Adjoint, Pair, Problem
from difflinalg._ode.forward import forward
from difflinalg._ode.system import Leaves


@dataclass(frozen=True)
class Forward(Adjoint):
    """Tangents along every entry of the state and the parameters, contracted with cotangents.

    The derivative is that of the steps taken, as with `Checkpointed`; nothing but the outputs is
    stored. Right for a handful of states and parameters: the cost is one tangent for each entry.

    Args:
        max_steps: for how many accepted steps there is room in the record of times.
    """

    max_steps: int = 4096

    def __post_init__(self) -> None:
        checks.check_positive("Forward", "max_steps", self.max_steps)

    def pull(self, problem: Problem, active: tuple[bool, ...], ys: Pair, cotangents: Pair) -> Pair:
        """Push a basis forwards and pair it with the cotangents."""
        del ys
        control, system, lift, y0, ts, record = problem
        n, sizes = len(y0), ts.shape[:-1]
        wanted = [x if a else None for x, a in zip(lift.p, active, strict=True)]
        leaves = [*y0, *lift.spread(wanted, sizes)]
        tangent = system.tangent(active)

        def paired(direction: Leaves) -> Array:
            """`Re <g, dY direction>` for every member of the batch."""
            inner, final = forward(
                control,
                tangent,
                lift.tangent(direction[n:]),
                [*y0, *direction[:n]],
                ts,
                record,
            )
            total = jnp.zeros(sizes, ts.dtype)
            for bars, dots in zip(cotangents, (inner[n:], final[n:]), strict=True):
                for g, x in zip(bars, dots, strict=True):
                    product = jnp.real(g * x).reshape((*sizes, -1))
                    total += jnp.sum(product, axis=-1).astype(ts.dtype)
            return total

        basis = _basis(leaves, sizes)
        table = jax.vmap(paired)(basis)
        result, row = [], 0
        for x in leaves:
            count = _entries(x, sizes)
            part = jnp.moveaxis(table[row : row + count], 0, -1)
            row += count
            if jnp.iscomplexobj(x):
                # a cotangent pairs with the real and minus the imaginary part
                part = part - 1j * jnp.moveaxis(table[row : row + count], 0, -1)
                row += count
            result.append(part.reshape(x.shape).astype(x.dtype))
        return result[:n], result[n:]


def _entries(x: Array, sizes: tuple[int, ...]) -> int:
    count = 1
    for size in x.shape[len(sizes) :]:
        count *= size
    return count


def _basis(leaves: Leaves, sizes: tuple[int, ...]) -> Leaves:
    """Unit tangents of all real components, stacked along a new leading axis."""
    counts = [_entries(x, sizes) * (2 if jnp.iscomplexobj(x) else 1) for x in leaves]
    total, start, basis = sum(counts), 0, []
    for x, count in zip(leaves, counts, strict=True):
        unit = jnp.eye(total, count, -start)
        start += count
        if jnp.iscomplexobj(x):
            half = count // 2
            unit = unit[:, :half] + 1j * unit[:, half:]
        own = x.shape[len(sizes) :]
        unit = unit.reshape((total, *(1 for _ in sizes), *own)).astype(x.dtype)
        basis.append(jnp.broadcast_to(unit, (total, *x.shape)))
    return basis
