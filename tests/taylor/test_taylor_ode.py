"""Integrations on series: parameters, initial states and times, to tenth order."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np

from difflinalg.ode import odeint
from difflinalg.taylor import derivatives

ORDER = 10
OPTIONS = {"rtol": 1e-13, "atol": 1e-13, "method": "Dopri8"}


def _van_der_pol(y, t, mu):
    del t
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def _close(found, wanted, rtol=1e-6):
    wanted = np.array([[float(x) for x in row] for row in wanted])
    size = np.max(np.abs(wanted), axis=1)
    np.testing.assert_array_less(np.max(np.abs(found - wanted), axis=1), rtol * size)


def test_van_der_pol_to_tenth_order_in_time_and_in_its_parameter():
    y0, mu, end = [2.0, 0.0], 1.2, 1.5

    def solution(t, mu):
        return odeint(_van_der_pol, jnp.array(y0), jnp.stack([0.0, t]), mu, **OPTIONS)[-1]

    in_time = jax.jit(lambda t: derivatives(lambda t: solution(t, mu), t, ORDER))(end)
    in_mu = jax.jit(lambda m: derivatives(lambda m: solution(end, m), m, ORDER))(mu)
    with mp.workdps(30):
        state, by_mu = _reference(mp.mpf(y0[0]), mp.mpf("1.2"), mp.mpf("1.5"))
        _close(in_time, state)
        _close(in_mu, by_mu)


def _reference(x, mu, end, steps=30, degree=20):
    """Van der Pol by Taylor steps in time, on polynomials in the parameter, to order `ORDER`."""
    zero = [mp.mpf(0)] * (ORDER + 1)
    shift = [mu, mp.mpf(1), *zero[2:]]

    def times(a, b):
        return [sum(a[j] * b[k - j] for j in range(k + 1)) for k in range(ORDER + 1)]

    def plus(a, b, factor=1):
        return [p + factor * q for p, q in zip(a, b, strict=True)]

    def expand(x, v):
        """The coefficients in time of both components."""
        xs, vs = [x], [v]
        squares, rates = [], []
        for k in range(degree):
            square = zero
            for j in range(k + 1):
                square = plus(square, times(xs[j], xs[k - j]))
            squares.append(square)
            gap = [-c for c in square]
            gap[0] += 1 if k == 0 else 0
            rates.append(gap)
            damping = zero
            for j in range(k + 1):
                damping = plus(damping, times(rates[j], vs[k - j]))
            force = plus(times(shift, damping), xs[k], -1)
            xs.append([c / (k + 1) for c in vs[k]])
            vs.append([c / (k + 1) for c in force])
        return xs, vs

    state = [[x, *zero[1:]], list(zero)]
    h = end / steps
    for _ in range(steps):
        series = expand(*state)
        state = [
            [sum(c[k] * h**m for m, c in enumerate(own)) for k in range(ORDER + 1)]
            for own in series
        ]
    xs, vs = expand(*state)
    in_time = [[xs[k][0] * mp.factorial(k), vs[k][0] * mp.factorial(k)] for k in range(ORDER + 1)]
    by_mu = [[own[k] * mp.factorial(k) for own in state] for k in range(ORDER + 1)]
    return in_time, by_mu


def test_linear_equation_to_tenth_order_in_everything():
    """`y' = p y cos(t)`: start, parameter and both times move, batched, with a complex state."""
    q = 0.7 - 0.4j

    def solution(e, scale):
        y0 = jnp.array([jnp.exp(e) * (1.0 + 0.5j)])
        ts = jnp.stack([e, 0.5 + e * e, scale + jnp.sin(e)])
        field = lambda y, t, p: p * y * jnp.cos(t)  # noqa: E731
        return odeint(field, y0, ts, q * (1 + e), **OPTIONS)[1:, 0]

    scales, e = np.array([1.0, 1.5]), 0.2
    of_all = jax.vmap(lambda s: derivatives(lambda e: solution(e, s), e, ORDER))
    found = jax.jit(of_all)(jnp.asarray(scales))
    with mp.workdps(40):
        for i, scale in enumerate(scales):
            for j in range(2):

                def exact(e, j=j, scale=float(scale)):
                    end = scale + mp.sin(e) if j else mp.mpf(0.5) + e * e
                    phase = mp.mpc(0.7, -0.4) * (1 + e) * (mp.sin(end) - mp.sin(e))
                    return mp.exp(e) * mp.mpc(1, 0.5) * mp.exp(phase)

                series = mp.taylor(exact, mp.mpf(e), ORDER)
                wanted = np.array([complex(c * mp.factorial(k)) for k, c in enumerate(series)])
                error = np.abs(found[i, :, j] - wanted) / np.abs(wanted)
                assert np.max(error) < 1e-6


def test_the_gradient_of_a_high_derivative():
    """d/dk of the third derivative of `exp(-k t)` with respect to t."""

    def third(k):
        def end(t):
            field = lambda y, t, k: -k * y + 0.0 * t  # noqa: E731
            return odeint(field, jnp.array(1.0), jnp.stack([0.0, t]), k, **OPTIONS)[-1]

        return derivatives(end, 1.0, 3)[3]

    k = 0.8
    np.testing.assert_allclose(jax.grad(third)(k), (k**3 - 3 * k**2) * np.exp(-k), rtol=1e-8)
