"""How derivatives are computed: one frozen dataclass for each method.

Each of them knows two linear maps, `push` from tangents to those of the outputs and `pull`, its
transpose. All nestings of modes follow from the two (see `operations`).
"""

from dataclasses import dataclass

from jax import Array

from difflinalg._core import checks
from difflinalg._ode import backward as backward_pass
from difflinalg._ode import forward as forward_pass
from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record
from difflinalg._ode.lift import Lift
from difflinalg._ode.system import Leaves, System

Pair = tuple[Leaves, Leaves]


@dataclass(frozen=True)
class Adjoint:
    """The base of all derivative methods."""

    needs_outputs = False  # whether `pull` starts from the outputs

    @property
    def capacity(self) -> int:
        """How many accepted steps are recorded where derivatives are taken."""
        raise NotImplementedError

    def push(
        self, control: Control, system: System, lift: Lift, y0: Leaves, ts: Array, record: Record
    ) -> Pair:
        """The outputs of a tangent system."""
        return forward_pass.forward(control, system, lift, y0, ts, record)

    def pull(
        self,
        control: Control,
        system: System,
        lift: Lift,
        active: tuple[bool, ...],
        y0: Leaves,
        ts: Array,
        ys: Pair,
        record: Record,
        cotangents: Pair,
    ) -> Pair:
        """The cotangents of `y0` and of the active `p` from those of the outputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Checkpointed(Adjoint):
    """Discretise, then optimise: the exact derivative of the steps taken, with checkpoints.

    Args:
        segment: how many steps are held in full at a time.
        slots: how many other states are kept.
        max_steps: for how many accepted steps there is room in the record of times (8 bytes
            each); an integration that is differentiated and takes more of them fails.

    Cost:
        Memory of `slots` states and `segment` steps, whatever the number of steps. Up to
        `segment * slots` steps reverse mode computes each step twice and reverses it once;
        beyond, the first number grows with the logarithm of the length.
    """

    segment: int = 16
    slots: int = 32
    max_steps: int = 4096

    def __post_init__(self) -> None:
        for name in ("segment", "slots", "max_steps"):
            checks.check_positive("Checkpointed", name, getattr(self, name))

    @property
    def capacity(self) -> int:
        """How many accepted steps are recorded."""
        return self.max_steps

    def pull(
        self,
        control: Control,
        system: System,
        lift: Lift,
        active: tuple[bool, ...],
        y0: Leaves,
        ts: Array,
        ys: Pair,
        record: Record,
        cotangents: Pair,
    ) -> Pair:
        """The backward pass over the recorded steps."""
        del ys
        return backward_pass.backward(
            control, system, lift, active, y0, ts, record, cotangents, self.segment, self.slots
        )
