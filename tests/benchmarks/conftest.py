"""Speed is measured with LLVM's optimisation, which the other tests do without."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=3"
