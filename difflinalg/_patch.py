"""`patch`: let code that cannot be edited use this library through the names of JAX."""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax.numpy.linalg
import jax.scipy.linalg

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

PAIRS = ((jax.numpy.linalg, linalg), (jax.scipy.linalg, scipy_linalg))

_lock = threading.RLock()
_depth = 0
_originals: list[tuple[ModuleType, str, Any]] = []


@contextmanager
def patch() -> Iterator[None]:
    """Make the names of `jax.numpy.linalg` and `jax.scipy.linalg` point to this library.

    Inside of the `with` block `jnp.linalg.svd(a)` is `difflinalg.linalg.svd(a)`, for every name
    that both have. On exit, also by an exception, the names are those of JAX again.

    What it reaches, and what not:

    - Attributes that are looked up inside of the block: `jnp.linalg.svd`, and imports executed in
      it. A name that was imported before (`from jax.numpy.linalg import svd`) stays JAX's.
    - A function that `jax.jit` has traced before the block is not traced again for the same
      shapes, and one that was traced inside keeps this library after it. Wrap it in `jax.jit`
      inside of the block, or call `jax.clear_caches()`.
    - It holds for all threads of the process. Blocks may be nested and may overlap between
      threads: the names are restored when the last one is left.
    - JAX and this library themselves go on calling JAX's functions.

    Example:
        >>> import jax.numpy as jnp
        >>> import difflinalg
        >>> with difflinalg.patch():
        ...     print(jnp.linalg.svd.__module__)
        difflinalg._dense.svd
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        for module, replacement in PAIRS:
            for name in _common_names(module, replacement):
                original = getattr(module, name)
                _originals.append((module, name, original))
                setattr(module, name, _redirected(original, getattr(replacement, name)))


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            while _originals:
                module, name, original = _originals.pop()
                setattr(module, name, original)


def _common_names(module: ModuleType, replacement: ModuleType) -> list[str]:
    """The functions that both have under one name, and that differ."""
    return [
        name
        for name in vars(module)
        if not name.startswith("_")
        and callable(getattr(replacement, name, None))
        and getattr(replacement, name) is not getattr(module, name)
    ]


def _redirected(original: Callable[..., Any], replacement: Callable[..., Any]) -> Any:
    """A function that calls `replacement`, or `original` if called from this library.

    Rules and primals are traced and lowered at any later time, in any thread; who calls is what
    tells them apart, not when.
    """

    @functools.wraps(replacement)
    def redirected(*args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        inside = caller == "difflinalg" or caller.startswith("difflinalg.")
        return (original if inside else replacement)(*args, **kwargs)

    return redirected
