"""Settings of every test: double precision, and compiled programs kept between runs."""

import os
import tempfile

# The time of the tests is compile time. Without LLVM's optimisation it falls by a third, and what
# XLA makes of a program stays the same.
os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}"

import jax
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update(
    "jax_compilation_cache_dir",
    os.environ.get(
        "JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), "difflinalg-jax-cache")
    ),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190703)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """Compiled programs of one module are of no use to the next, and fill the memory."""
    yield
    jax.clear_caches()
