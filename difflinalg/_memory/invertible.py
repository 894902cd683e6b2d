"""Steps that can be run backwards, one by one and in sequence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax

from difflinalg._core import checks, loop_checks

Tree = Any


class Invertible(NamedTuple):
    """A step of `reversible_scan` with its inverse; `reversible_scan(*invertible, carry, xs)`.

    `step(carry, x)` returns `(new_carry, y)` as in `jax.lax.scan`, `inverse(new_carry, x)`
    returns `carry`.
    """

    step: Callable[[Tree, Tree], tuple[Tree, Tree]]
    inverse: Callable[[Tree, Tree], Tree]


@dataclass(frozen=True)
class UndoableStep:
    """A step with a shorter way back than its inverse and its pullback one after the other.

    `undo(new_carry, x, carry_bar)` returns `(carry, new_carry_bar, x_bar)`. It knows nothing of
    the derivative with respect to what the step closes over, and is not used if there is one.
    """

    step: Callable[[Tree, Tree], tuple[Tree, None]]
    undo: Callable[[Tree, Tree, Tree], tuple[Tree, Tree, Tree]]

    def __call__(self, carry: Tree, x: Tree) -> tuple[Tree, None]:
        return self.step(carry, x)


@dataclass(frozen=True)
class ChainStep:
    """The members of a chain from first to last."""

    members: tuple[Invertible, ...]
    shared: bool

    def inputs(self, x: Tree) -> tuple[Tree, ...]:
        """What each member gets of `x`."""
        if self.shared:
            return (x,) * len(self.members)
        loop_checks.check_chain_input(x, len(self.members))
        return tuple(x)

    def __call__(self, carry: Tree, x: Tree) -> tuple[Tree, tuple[Tree, ...]]:
        ys = []
        for member, part in zip(self.members, self.inputs(x), strict=True):
            carry, y = member.step(carry, part)
            ys.append(y)
        return carry, tuple(ys)


@dataclass(frozen=True)
class ChainInverse:
    """The inverses of the members from last to first."""

    forward: ChainStep

    def __call__(self, carry: Tree, x: Tree) -> Tree:
        parts = self.forward.inputs(x)
        for member, part in zip(reversed(self.forward.members), reversed(parts), strict=True):
            carry = member.inverse(carry, part)
        return carry


def chain(*members: Invertible, shared: bool = False) -> Invertible:
    """Invertible steps in sequence, as one step.

    `reversible_scan` undoes the members one by one, so that it never holds the carries between
    them.

    Args:
        members: the steps; the carry of one is the carry of the next.
        shared: whether every member gets the whole of `x`. By default `x` is a tuple with one
            entry for each member.

    Returns:
        The sequence as an `Invertible`; its `y` is the tuple of the members' `y`.

    Raises:
        ValueError: if there is no member, or when called, if `x` is not a tuple with one entry for
            each member.

    Derivatives:
        Those of the members.

    Cost:
        That of the members.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> shift = memory.Invertible(lambda c, x: (c + x, None), lambda c, x: c - x)
        >>> step, inverse = memory.chain(shift, shift)
        >>> print(step(1.0, (2.0, 3.0))[0], inverse(6.0, (2.0, 3.0)))
        6.0 1.0

    References:
        Gomez, Ren, Urtasun and Grosse, "The reversible residual network" (2017), section 3;
        arXiv:1707.04585.
    """
    loop_checks.check_members(len(members))
    forward = ChainStep(tuple(Invertible(*member) for member in members), shared)
    return Invertible(forward, ChainInverse(forward))


@dataclass(frozen=True)
class RepeatStep:
    """One step, `count` times."""

    member: Invertible
    count: int

    def __call__(self, carry: Tree, x: Tree) -> tuple[Tree, Tree]:
        return lax.scan(lambda c, _: self.member.step(c, x), carry, None, length=self.count)


@dataclass(frozen=True)
class RepeatInverse:
    """The inverse of one step, as many times."""

    forward: RepeatStep

    def __call__(self, carry: Tree, x: Tree) -> Tree:
        member, count = self.forward.member, self.forward.count
        return lax.scan(lambda c, _: (member.inverse(c, x), None), carry, None, length=count)[0]


def repeat(invertible: Invertible, count: int) -> Invertible:
    """An invertible step that is taken several times with the same `x`, as one step.

    `reversible_scan` undoes the repetitions one by one, so that it never holds the carries between
    them.

    Args:
        invertible: the step and its inverse.
        count: how many times it is taken, a positive integer.

    Returns:
        The repetition as an `Invertible`; its `y` are those of the step, stacked.

    Raises:
        ValueError: if `count` is not a positive integer.

    Derivatives:
        Those of the step.

    Cost:
        `count` times that of the step. The compiled program does not grow with `count`.

    Example:
        >>> from difflinalg import memory
        >>> double = memory.Invertible(lambda c, x: (c * x, None), lambda c, x: c / x)
        >>> step, inverse = memory.repeat(double, 3)
        >>> print(step(1.0, 2.0)[0], inverse(8.0, 2.0))
        8.0 1.0

    References:
        Gomez, Ren, Urtasun and Grosse, "The reversible residual network" (2017), section 3;
        arXiv:1707.04585.
    """
    forward = RepeatStep(invertible, checks.check_positive("repeat", "count", count))
    return Invertible(forward, RepeatInverse(forward))
