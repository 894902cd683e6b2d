"""The N = 16 chain with its vectors on four devices: same numbers, and a basis in four parts."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
jax.config.update("jax_enable_x64", True)
import chain
from difflinalg.scipy.sparse.linalg import eigsh

sites = 16
size = 2**sites
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
v0 = np.random.default_rng(0).standard_normal(size)
v0 = jax.device_put(v0, NamedSharding(mesh, PartitionSpec("x")))

def energy(g, v0):
    w, v = eigsh(chain.hamiltonian(sites, g), 1, which="SA", v0=v0, verify=False)
    return w[0], v[:, 0]

compiled = jax.jit(jax.value_and_grad(energy, has_aux=True)).lower(1.0, v0).compile()
text = compiled.as_text()
assert f"f64[21,{size // 4}]" in text, "the basis is not sharded"
assert f"f64[21,{size}]" not in text, "a whole basis is on one device"
(value, vector), slope = compiled(1.0, v0)
want = chain.exact(sites)
np.testing.assert_allclose([value, slope], want[:2], rtol=1e-11)
print("sharded", vector.sharding.spec)
"""


def test_vectors_on_four_devices_give_the_same_numbers():
    here = Path(__file__).parent
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])]),
        "JAX_PLATFORMS": "cpu",
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "sharded" in run.stdout
