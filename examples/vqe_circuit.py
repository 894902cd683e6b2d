"""Ground state of the transverse-field Ising ring by a variational circuit, run backwards.

The circuit of `layers` layers

    |psi> = prod_l exp(-i beta_l sum_j X_j) exp(-i gamma_l sum_j Z_j Z_{j+1}) |+...+>

(Ho and Hsieh 2019, SciPost Phys. 6, 029) holds the ground state of

    H = -sum_j (Z_j Z_{j+1} + g X_j)

at N / 2 layers. The gradient of its energy is found by uncomputing (Luo et al. 2020, Yao.jl,
section 3.2): two states, whatever the depth. A table compares with plain automatic
differentiation, which stores every state.

    python examples/vqe_circuit.py --sites 10
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.optimize import minimize

from difflinalg import memory
from difflinalg.scipy.sparse.linalg import eigsh


def bonds(sites: int) -> np.ndarray:
    """The diagonal of `sum_j Z_j Z_{j+1}` on the ring, shape `(2^sites,)`."""
    spins = 1.0 - 2.0 * ((np.arange(2**sites)[:, None] >> np.arange(sites)) & 1)
    return np.sum(spins * np.roll(spins, 1, axis=1), axis=1)


def flip(psi: Array, site: int) -> Array:
    """Pauli X on one site."""
    return psi[np.arange(psi.size) ^ (1 << site)]


def layer(sites: int) -> memory.Invertible:
    """One layer; its input is `(gamma, beta, ..., beta)` with one angle for each gate."""
    mixers = [memory.involution_gate(partial(flip, site=site)) for site in range(sites)]
    return memory.chain(memory.diagonal_gate(bonds(sites)), *mixers)


def state(angles: Array, sites: int, reversible: bool = True) -> Array:
    """The state of the circuit; `angles` has shape `(layers, 2)`, gamma before beta."""
    size = 2**sites
    real = angles.dtype
    psi = jnp.full(size, size**-0.5, jnp.result_type(real, jnp.complex64))
    xs = (angles[:, 0], *(angles[:, 1],) * sites)
    step, inverse = layer(sites)
    if reversible:
        return memory.reversible_scan(step, inverse, psi, xs)[0]
    return lax.scan(step, psi, xs)[0]


def hamiltonian(psi: Array, field: float, sites: int) -> Array:
    """`H psi`."""
    flipped = sum(flip(psi, site) for site in range(sites))
    return -jnp.asarray(bonds(sites)).astype(psi.dtype) * psi - field * flipped


def energy(angles: Array, field: float, sites: int, reversible: bool = True) -> Array:
    """The energy of the circuit's state."""
    psi = state(angles, sites, reversible)
    return jnp.real(jnp.vdot(psi, hamiltonian(psi, field, sites)))


def exact_energy(field: float, sites: int) -> float:
    """The ground-state energy, without the circuit."""
    product = partial(hamiltonian, field=field, sites=sites)
    shape = jax.ShapeDtypeStruct((2**sites,), jnp.result_type(float))
    return float(eigsh(product, 1, which="SA", v0=shape, return_eigenvectors=False)[0])


def optimise(field: float, sites: int, layers: int, seed: int) -> tuple[np.ndarray, list[float]]:
    """Angles of least energy, and the energy after each iteration of L-BFGS."""
    value_and_slope = jax.jit(jax.value_and_grad(partial(energy, field=field, sites=sites)))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(jnp.asarray(flat.reshape(layers, 2)))
        return float(value), np.asarray(slope).ravel()

    history = []
    start = np.random.default_rng(seed).uniform(0.1, 0.3, 2 * layers)
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=lambda intermediate_result: history.append(float(intermediate_result.fun)),
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20},
    )
    return result.x.reshape(layers, 2), history


def measure(
    function: Callable[[Array], Any], angles: Array, repeats: int
) -> tuple[Any, float, int]:
    """The result, the best time of a call in seconds, and the bytes of its temporaries."""
    compiled = jax.jit(function).lower(angles).compile()
    result = jax.block_until_ready(compiled(angles))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(angles))
        times.append(time.perf_counter() - start)
    return result, min(times), compiled.memory_analysis().temp_size_in_bytes


def compare(sites: int, depths: list[int], field: float, repeats: int) -> list[dict[str, float]]:
    """Memory and time of value and gradient for circuits of several depths."""
    rows = []
    for depth in depths:
        angles = jnp.asarray(np.random.default_rng(depth).uniform(-1.0, 1.0, (depth, 2)))
        value = partial(energy, field=field, sites=sites)
        stored = partial(value, reversible=False)
        _, value_time, _ = measure(value, angles, repeats)
        back, time_back, bytes_back = measure(jax.value_and_grad(value), angles, repeats)
        plain, time_plain, bytes_plain = measure(jax.value_and_grad(stored), angles, repeats)
        difference = jnp.max(jnp.abs(back[1] - plain[1])) / jnp.max(jnp.abs(plain[1]))
        rows.append({
            "depth": depth,
            "value_ms": 1e3 * value_time,
            "uncompute_ms": 1e3 * time_back,
            "plain_ms": 1e3 * time_plain,
            "uncompute_kB": bytes_back / 1e3,
            "plain_kB": bytes_plain / 1e3,
            "difference": float(difference),
        })  # fmt: skip
    return rows


def picture(path: str, history: list[float], exact: float, rows: list[dict[str, float]]) -> None:
    """Write the convergence of the energy and the memory of the gradient."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    left.semilogy(np.maximum(np.array(history) - exact, 1e-15), ".-")
    left.set_xlabel("iteration of L-BFGS")
    left.set_ylabel("E - E_exact [J]")
    depths = [row["depth"] for row in rows]
    for key, label in (("plain_kB", "plain AD"), ("uncompute_kB", "uncomputing")):
        right.loglog(depths, [row[key] for row in rows], "o-", label=label)
    right.set_xlabel("layers")
    right.set_ylabel("temporary memory of the gradient [kB]")
    right.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Print energies and the table; draw the picture if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=10, help="spins on the ring, even, 4 to 14")
    parser.add_argument("--field", type=float, default=1.0, help="transverse field g")
    parser.add_argument("--layers", type=int, help="layers of the circuit (default sites / 2)")
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seed", type=int, default=1, help="of the first angles")
    parser.add_argument("--output", help="an image file")
    parser.add_argument("--smoke", action="store_true", help="a few seconds: 4 sites, 3 layers")
    options = parser.parse_args()
    if not 4 <= options.sites <= 14 or options.sites % 2:
        parser.error("--sites is even, from 4 to 14")
    if (options.layers is not None and options.layers < 1) or min(options.depths) < 1:
        parser.error("--layers and --depths are at least 1")
    jax.config.update("jax_enable_x64", True)
    sites, depths = (4, [3]) if options.smoke else (options.sites, options.depths)
    layers = options.layers or sites // 2
    _, history = optimise(options.field, sites, layers, options.seed)
    exact = exact_energy(options.field, sites)
    print(f"Ising ring, {sites} sites, g = {options.field}, {layers} layers of {sites + 1} gates")
    print(f"energy {history[-1]:.12f} after {len(history)} iterations, eigsh {exact:.12f}, "
          f"difference {history[-1] - exact:.1e}")  # fmt: skip
    rows = compare(sites, depths, options.field, 1 if options.smoke else 5)
    print("gradient of a random circuit: uncomputing against plain AD")
    print(" layers  value ms  uncompute ms  plain ms  uncompute kB    plain kB  rel.diff.")
    for row in rows:
        print("{depth:7d} {value_ms:9.2f} {uncompute_ms:13.2f} {plain_ms:9.2f} "
              "{uncompute_kB:13.1f} {plain_kB:11.1f} {difference:10.1e}".format(**row))  # fmt: skip
    if options.output:
        picture(options.output, history, exact, rows)


if __name__ == "__main__":
    main()
