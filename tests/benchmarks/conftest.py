"""Benchmarks measure programs that are compiled as users compile them."""

import os

# The tests do without LLVM's optimisation; XLA reads its flags when it first compiles.
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(
    "--xla_backend_optimization_level=0", "", 1
)
