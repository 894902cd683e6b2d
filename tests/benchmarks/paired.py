"""Two programs timed in turn, so that what disturbs the one disturbs the other."""

import time

import jax
import numpy as np


def compare(benchmark, title, ours, peer, *args, seconds=3.0, least=20, jit=True):
    """Benchmark `ours`, with a call of `peer` next to every call of it.

    The order alternates: who comes second finds the caches warm. The median of the ratios of
    neighbours, and the ratio of the fastest calls, are added to the title of the group. The peer
    may be a program without JAX (`jit=False`).
    """
    ours, peer = jax.jit(ours), jax.jit(peer) if jit else peer

    def timed(run):
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        return time.perf_counter() - start

    for run in (ours, peer):
        timed(run)  # compiles
    rounds = int(np.clip(seconds / (timed(ours) + timed(peer)), least, 2000))
    theirs, rounds_begun = [], []

    def before():
        rounds_begun.append(None)
        if len(rounds_begun) % 2:
            theirs.append(timed(peer))

    def after():
        if not len(rounds_begun) % 2:
            theirs.append(timed(peer))

    benchmark.pedantic(
        lambda: jax.block_until_ready(ours(*args)), setup=before, teardown=after, rounds=rounds
    )
    mine = benchmark.stats.stats.data
    median, fastest = np.median(np.divide(mine, theirs)), min(mine) / min(theirs)
    benchmark.extra_info.update(median=float(median), fastest=float(fastest))
    benchmark.stats.group = f"{title}: ratio {median:.2f}, of the fastest calls {fastest:.2f}"
