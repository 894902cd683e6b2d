"""Integrators of ordinary differential equations with derivatives in every direction."""

from difflinalg._ode.adjoints import Adjoint as Adjoint
from difflinalg._ode.adjoints import Checkpointed as Checkpointed
from difflinalg._ode.continuous import Backsolve as Backsolve
from difflinalg._ode.continuous import Interpolating as Interpolating
from difflinalg._ode.odeint import odeint as odeint
from difflinalg._ode.sensitivity import Forward as Forward
from difflinalg._ode.solve_ivp import OdeResult as OdeResult
from difflinalg._ode.solve_ivp import solve_ivp as solve_ivp
from difflinalg._ode.symplectic import Reversible as Reversible
from difflinalg._ode.symplectic import symplectic as symplectic
