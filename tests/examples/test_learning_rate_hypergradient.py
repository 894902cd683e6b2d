"""The hypergradient example: against checkpoints, against differences of real arithmetic, CLI."""

import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

SCRIPT = Path(__file__).parents[2] / "examples" / "learning_rate_hypergradient.py"


def load():
    spec = importlib.util.spec_from_file_location("hypergradient_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load()


def schedules(steps):
    t = jnp.arange(steps)
    return 0.4 + 0.2 * jnp.sin(t), 0.85 + 0.1 * jnp.cos(t)


def real_training(rates, decays):
    """The same training in ordinary arithmetic."""
    points, labels = example.spirals(1)

    def step(state, x):
        (w, v), (rate, decay, batch) = state, x
        slope = jax.grad(example.loss)(w, points[batch], labels[batch])
        v = jax.tree.map(lambda v, g: decay * v - (1 - decay) * g, v, slope)
        return (jax.tree.map(lambda w, v: w + rate * v, w, v), v), None

    w = example.first_weights(1)
    xs = (rates, decays, example.batches(rates.shape[0], 1))
    (w, _), _ = lax.scan(step, (w, jax.tree.map(jnp.zeros_like, w)), xs)
    return example.loss(w, *example.spirals(2))


def test_hypergradient_is_that_of_real_arithmetic():
    rates, decays = schedules(60)
    value, got = jax.jit(example.hypergradient(1))(rates, decays)
    real = jax.jit(real_training)
    np.testing.assert_allclose(value, real(rates, decays), rtol=1e-4)
    for i, d in enumerate(schedules(60)):
        shift = lambda h, i=i, d=d: real(rates + h * d * (i == 0), decays + h * d * (i == 1))  # noqa: E731
        slope = (8 * (shift(1e-4) - shift(-1e-4)) - shift(2e-4) + shift(-2e-4)) / 12e-4
        np.testing.assert_allclose(jnp.sum(got[i] * d), slope, rtol=2e-3)


def test_command_agrees_with_checkpoints_over_a_thousand_steps(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    path = tmp_path / "rates.png"
    arguments = ["--steps", "1000", "--updates", "1", "--output", str(path)]
    monkeypatch.setattr(sys, "argv", ["example", *arguments])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert all(float(line.split("difference")[1]) < 1e-9 for line in lines[1:3])
    reversible, nested, plain = (float(line.split()[-2]) for line in lines[3:6])
    assert 10 * reversible < nested < plain / 10
    losses = lines[6].split(":")[1].split("->")
    assert float(losses[1]) < float(losses[0])
    assert path.stat().st_size > 1000


def test_command_refuses_bad_numbers(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["example", "--steps", "0"])
    with pytest.raises(SystemExit):
        example.main()
