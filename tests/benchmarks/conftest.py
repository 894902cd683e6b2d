"""Benchmarks measure programs that are compiled as users compile them."""

import os

# The tests do without LLVM's optimisation; XLA reads its flags when it first compiles. Only
# blanks would be the name of a file to it.
FLAG = "--xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(FLAG, "", 1).strip()
