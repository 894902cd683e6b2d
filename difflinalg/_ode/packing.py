"""Small leaves joined into one vector for each dtype.

A loop that carries many small arrays spends its time on starting operations, one or more for each
of them. Large arrays are left alone, because joining copies them.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from difflinalg._ode.system import Leaves

SMALL = 512  # entries


class Packing:
    """How a list of arrays is joined; `shapes` and `dtypes` are those without batch axes."""

    def __init__(self, shapes: list[tuple[int, ...]], dtypes: list[Any]) -> None:
        self._shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]
        joined: dict[Any, list[int]] = {}
        self._groups: list[list[int]] = []  # the leaves in each of the arrays
        for i, dtype in enumerate(dtypes):
            if self._sizes[i] > SMALL:
                self._groups.append([i])
            elif dtype in joined:
                joined[dtype].append(i)
            else:
                joined[dtype] = [i]
                self._groups.append(joined[dtype])

    def pack(self, leaves: Leaves) -> Leaves:
        """The joined arrays."""
        return [
            leaves[group[0]]
            if len(group) == 1
            else jnp.concatenate([leaves[i].reshape(-1) for i in group])
            for group in self._groups
        ]

    def unpack(self, arrays: Leaves) -> Leaves:
        """The leaves again."""
        leaves: dict[int, Array] = {}
        for group, x in zip(self._groups, arrays, strict=True):
            if len(group) == 1:
                leaves[group[0]] = x
                continue
            start = 0
            for i in group:
                leaves[i] = x[start : start + self._sizes[i]].reshape(self._shapes[i])
                start += self._sizes[i]
        return [leaves[i] for i in range(len(leaves))]


def packing_of(leaves: Leaves, batch: int) -> Packing:
    """How leaves that have `batch` batch axes in front are joined without them."""
    return Packing([x.shape[batch:] for x in leaves], [x.dtype for x in leaves])
