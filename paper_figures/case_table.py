"""The table of operations in the README, from the tests' own table of cases.

Every row is an entry of `OPERATIONS` in `tests/test_cross_product.py`, and every column is read
from what that file does with an entry: the derivatives that its program computes, its data types,
the spectra at which an entry says that no derivative exists, and the names that are batched.

    python -m paper_figures.case_table            # writes the table into README.md
"""

import argparse
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp

from paper_figures.common import FOLDER, source_of_test

README = FOLDER.parent / "README.md"


def replace_block(text: str, name: str, block: str) -> str:
    """The text with what stands between the two marks of this name replaced."""
    begin, end = f"<!-- generated: python -m paper_figures.{name} -->\n", f"<!-- end: {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        msg = f"README.md has not exactly one pair of the lines {begin!r} and {end!r}"
        raise ValueError(msg)
    head, rest = text.split(begin)
    return head + begin + block + end + rest.split(end)[1]


def derivatives(cases: ModuleType) -> tuple[str, ...]:
    """The names of the derivatives that the program of a case computes."""
    operation = cases.OPERATIONS["inv"]
    a = jax.ShapeDtypeStruct((3, 3), jnp.zeros(()).dtype)
    weights, cotangents = (jnp.ones((3, 3)),), (jnp.ones((3, 3)),)
    found = jax.eval_shape(cases.program(operation, weights, cotangents), a, a, a)
    return tuple(name for name in found if "jvp" in name or "vjp" in name)


def table(cases: ModuleType | None = None) -> str:
    """The lines of the table."""
    cases = source_of_test("test_cross_product") if cases is None else cases
    computed = derivatives(cases)
    order = 1 + max(name.count(" of ") for name in computed)
    types = {name: set() for name in cases.OPERATIONS}
    for case in cases.CASES:
        name, _, dtype = case.values
        types[name].add(jnp.dtype(dtype).name)
    batched = set(cases.test_vmap_equals_a_loop.pytestmark[0].args[1])
    lines = [
        "| operation | jvp | vjp | order | complex | degenerate | batched |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, operation in cases.OPERATIONS.items():
        not_at = [kind.replace("_", " ") for kind in cases.KINDS if kind in operation.undefined]
        both = {"complex64", "complex128"} <= types[name]
        cells = [
            f"`{name}`",
            *("yes" if mode in computed else "no" for mode in ("jvp", "vjp")),
            str(order),
            "yes" if both else "no",
            f"except {' and '.join(not_at)}" if not_at else "yes",
            "yes" if name in batched else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write(name: str, block: str, readme: Path = README) -> bool:
    """Put a generated block into the README; whether that changed it."""
    text = readme.read_text()
    new = replace_block(text, name, block)
    readme.write_text(new)
    return new != text


def main(arguments: list[str] | None = None) -> int:
    """Write the table into the README, or with `--check` fail if it is another one."""
    parser = argparse.ArgumentParser(prog="python -m paper_figures.case_table")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if it differs")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    block = table()
    if options.check:
        text = README.read_text()
        if replace_block(text, "case_table", block) != text:
            print("README.md has another table: run without --check", file=sys.stderr)
            return 1
    elif write("case_table", block):
        print(f"{README} changed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
