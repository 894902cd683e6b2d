"""Integrators of ordinary differential equations with derivatives in every direction."""

from difflinalg._ode.adjoints import Adjoint as Adjoint
from difflinalg._ode.adjoints import Checkpointed as Checkpointed
from difflinalg._ode.odeint import odeint as odeint
