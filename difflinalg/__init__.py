"""JAX linear algebra whose derivatives are right, in both modes and to any order."""

from difflinalg import implicit as implicit
from difflinalg import linalg as linalg
from difflinalg import memory as memory
from difflinalg import ode as ode
from difflinalg import scipy as scipy
from difflinalg import taylor as taylor
from difflinalg import testing as testing
from difflinalg._patch import patch as patch
