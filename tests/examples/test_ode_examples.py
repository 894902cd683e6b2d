"""The examples on differential equations run, and get what they claim."""

import importlib.util
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shooting_finds_the_velocity_of_the_kepler_ellipse():
    velocity = load("kepler_shooting").main(["--smoke"])
    assert np.max(np.abs(velocity - np.array([0.0, 2.0]))) < 1e-7


def test_neural_ode_learns_the_pieces_and_with_them_the_whole_trajectory():
    losses, distance = load("neural_ode").main(["--smoke"])
    assert losses[-1] < 0.01 * losses[0]
    assert distance < 0.1
