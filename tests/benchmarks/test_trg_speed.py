"""lnZ, energy and specific heat of TRG against a TRG in NumPy, forward only, and nested modes."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paired import compare

EXAMPLE = Path(__file__).parents[2] / "examples" / "ising_trg.py"
STEPS, COUPLING = 20, 0.40


def load_example():
    spec = importlib.util.spec_from_file_location("ising_trg", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numpy_trg(coupling: float, chi: int, steps: int) -> float:
    """Levin-Nave TRG, forward only; bond states of zero weight are dropped."""
    rows = np.sqrt([[np.cosh(coupling), np.sinh(coupling)]] * 2) * [[1, 1], [1, -1]]
    tensor = np.einsum("si,sj,sk,sl->ijkl", rows, rows, rows, rows)
    total = 0.0
    for step in range(steps):
        scale = np.abs(tensor).max()
        tensor, total = tensor / scale, total + np.log(scale) / 2**step
        d = tensor.shape[0]
        halves = []
        for matrix in (tensor, tensor.transpose(1, 2, 3, 0)):
            u, s, vh = np.linalg.svd(matrix.reshape(d * d, d * d))
            k = min(chi, int(np.sum(s > 1e-13 * s[0])))
            root = np.sqrt(s[:k])
            halves.append((u[:, :k] * root).reshape(d, d, k))
            halves.append((root[:, None] * vh[:k]).reshape(k, d, d))
        left_up, right_down, down_left, up_right = halves
        tensor = np.einsum(
            "xsp,pqy,qrz,wrs->xwzy", right_down, down_left, left_up, up_right, optimize=True
        )
    return total + np.log(np.einsum("abab->", tensor)) / 2**steps


@pytest.mark.parametrize("chi", [16, 24])
def test_value_energy_and_heat_against_numpy_forward_only(benchmark, chi):
    example = load_example()

    def thermodynamics(coupling):
        return example.thermodynamics(jnp.stack([coupling]), chi, STEPS)

    def numpy_value(coupling):
        return numpy_trg(float(coupling), chi, STEPS)

    value = thermodynamics(jnp.asarray(COUPLING))[0][0]
    assert abs(value / numpy_value(COUPLING) - 1.0) < 1e-12
    title = f"TRG, chi {chi}, {STEPS} steps, lnZ, energy and heat over NumPy's lnZ"
    coupling = jnp.asarray(COUPLING)
    compare(benchmark, title, thermodynamics, numpy_value, coupling, least=16, jit=False)


@pytest.mark.parametrize("chi", [16, 24])
def test_taylor_against_nested_forward_mode(benchmark, chi):
    example = load_example()

    def log_z(k):
        return example.log_partition_per_site(example.ising_tensor(k), chi, STEPS)

    def slope(k):
        return jax.jvp(log_z, (k,), (jnp.ones_like(k),))

    def nested(k):
        return jax.jvp(slope, (k,), (jnp.ones_like(k),))

    def thermodynamics(k):
        return example.thermodynamics(jnp.stack([k]), chi, STEPS)

    (_, (_, heat)) = nested(jnp.asarray(COUPLING))
    expected = thermodynamics(jnp.asarray(COUPLING))[2] / COUPLING**2
    assert abs(heat / expected[0] - 1.0) < 1e-8
    title = f"TRG, chi {chi}, {STEPS} steps, Taylor over nested forward mode"
    compare(benchmark, title, thermodynamics, nested, jnp.asarray(COUPLING), least=8)
