"""`patch` redirects the names of JAX, for as long as its block lasts."""

import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflinalg
from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

MODULES = {jax.numpy.linalg: linalg, jax.scipy.linalg: scipy_linalg}


def functions():
    return {
        (module, name): getattr(module, name)
        for module, mine in MODULES.items()
        for name in dir(module)
        if hasattr(mine, name) and not name.startswith("_")
    }


def rebuilt(a):
    """Code that cannot be edited."""
    u, s, vh = jnp.linalg.svd(a)
    return jnp.sum((u * s) @ vh) + jnp.sum(jax.scipy.linalg.sqrtm(a).real)


WANT = np.array([[1.5, 1.5], [1.5, 1.5]])


def test_code_that_looks_names_up_has_right_derivatives_inside_only():
    with difflinalg.patch():
        np.testing.assert_allclose(jax.grad(rebuilt)(jnp.eye(2)), WANT, atol=1e-7)
        np.testing.assert_allclose(jax.jit(jax.grad(rebuilt))(jnp.eye(2)), WANT, atol=1e-7)
        np.testing.assert_allclose(jax.vmap(jnp.linalg.svdvals)(jnp.eye(2)[None]), [[1, 1]])
    with pytest.raises(NotImplementedError):
        jax.grad(rebuilt)(jnp.eye(2))


def test_every_name_is_restored_also_after_an_exception():
    before = functions()
    with difflinalg.patch():
        inside = functions()
    assert functions() == before
    for (module, name), f in inside.items():
        mine = getattr(MODULES[module], name)
        assert mine in (before[module, name], getattr(f, "__wrapped__", None)), name
    with pytest.raises(ZeroDivisionError), difflinalg.patch():
        raise ZeroDivisionError
    assert functions() == before


def test_nested_blocks_restore_the_names_when_the_last_one_is_left():
    before = functions()
    with difflinalg.patch():
        inside = functions()
        with difflinalg.patch():
            assert functions() == inside
        assert functions() == inside
    assert functions() == before


def test_blocks_of_two_threads_may_overlap():
    before, entered, leave = jnp.linalg.svd, threading.Event(), threading.Event()

    def other():
        with difflinalg.patch():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with difflinalg.patch():
        thread.start()
        assert entered.wait(10)
    # This thread has left, the other one has not.
    assert jnp.linalg.svd is not before
    leave.set()
    thread.join()
    assert jnp.linalg.svd is before


def test_the_library_itself_goes_on_calling_jax():
    module = type(sys)("difflinalg._fake")
    exec("import jax.numpy as jnp\ndef f(a):\n    return jnp.linalg.svd(a)", module.__dict__)
    with difflinalg.patch():
        inner = str(jax.make_jaxpr(module.f)(jnp.eye(2)))
        outer = str(jax.make_jaxpr(lambda a: jnp.linalg.svd(a))(jnp.eye(2)))
    assert "difflinalg_svd" not in inner
    assert "difflinalg_svd" in outer
