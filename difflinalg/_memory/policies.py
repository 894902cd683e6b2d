"""What a checkpointed loop keeps for its reverse pass."""

from dataclasses import dataclass

from difflinalg._core import checks


@dataclass(frozen=True)
class Nested:
    """Loops in loops, each recomputed as a whole: both modes, any order.

    The `N` steps are grouped `levels` times into blocks of about `N^(1/levels)`. Reverse mode
    keeps the carries at the starts of the blocks on the way to the current step, about
    `levels N^(1/levels)`, and what the innermost block needs; each step is evaluated `levels`
    times. One level is plain AD.

    Raises:
        ValueError: if `levels` is not positive.
    """

    levels: int = 2

    def __post_init__(self) -> None:
        checks.check_positive("Nested", "levels", self.levels)


@dataclass(frozen=True)
class Revolve:
    """The optimal schedule for a known number of steps: reverse mode.

    Reverse mode keeps `slots` carries, the first one included, and evaluates the step as often as
    the optimal schedule must: `p(N, slots) + N` times: 4636 for 1000 steps in 10 slots.

    Raises:
        ValueError: if `slots` is not positive.
    """

    slots: int

    def __post_init__(self) -> None:
        checks.check_positive("Revolve", "slots", self.slots)


@dataclass(frozen=True)
class Online:
    """Checkpoints for a number of steps that is not known in advance: reverse mode.

    On the way forwards the carries at multiples of a stride are kept; when the `slots` are full,
    every other one is given up and the stride doubled. The way back follows the optimal schedule
    between those that it pays to keep: at most N evaluations more than `Revolve` needs.

    Raises:
        ValueError: if `slots` is not positive.
    """

    slots: int

    def __post_init__(self) -> None:
        checks.check_positive("Online", "slots", self.slots)


Checkpoints = Nested | Revolve | Online
