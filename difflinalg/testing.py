"""Gradient checks for functions of arrays, and matrices whose spectrum is prescribed.

- `check_derivatives` compares the derivatives of any function, in every nesting of forward and
  reverse mode, with extrapolated differences of the function itself.
- `check_gauge` tells whether a loss of the factors of an SVD or an eigendecomposition depends on
  the phases, or on the basis of a degenerate cluster, that the decomposition leaves open.
- `spectrum`, `random_unitary`, `random_hermitian` and `random_matrix` make the test input.
"""

from difflinalg._testing.derivatives import check_derivatives as check_derivatives
from difflinalg._testing.gauge import GaugeReport as GaugeReport
from difflinalg._testing.gauge import check_gauge as check_gauge
from difflinalg._testing.matrices import random_hermitian as random_hermitian
from difflinalg._testing.matrices import random_matrix as random_matrix
from difflinalg._testing.matrices import random_unitary as random_unitary
from difflinalg._testing.matrices import spectrum as spectrum
from difflinalg._testing.report import DerivativeEntry as DerivativeEntry
from difflinalg._testing.report import DerivativeError as DerivativeError
from difflinalg._testing.report import DerivativeReport as DerivativeReport
from difflinalg._testing.report import InconclusiveError as InconclusiveError
