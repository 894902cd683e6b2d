"""The methods by name."""

from difflinalg._core import checks
from difflinalg._ode.dop853 import DOPRI8
from difflinalg._ode.tableaus import DOPRI5, ESDIRK43, RK4, TSIT5, Tableau

METHODS = {method.name: method for method in (DOPRI5, TSIT5, DOPRI8, ESDIRK43, RK4)}


def tableau(name: str, method: str) -> Tableau:
    """The coefficients of an adaptive method."""
    adaptive = tuple(key for key, value in METHODS.items() if value.errors)
    checks.check_choice(name, "method", method, adaptive)
    return METHODS[method]
