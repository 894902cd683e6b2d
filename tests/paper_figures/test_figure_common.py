"""Results survive an interruption, and are read again only for the same parameters."""

import json

import numpy as np
import pytest

from paper_figures.common import Figure, Store, plain

HEAD = {"figure": "squares", "parameters": {"seed": 1}}


def test_an_interrupted_run_computes_only_what_is_missing(tmp_path):
    path, calls = tmp_path / "squares.json", []

    def square(x):
        calls.append(x)
        if x == 3 and calls.count(3) == 1:
            raise KeyboardInterrupt
        return x * x

    def run():
        store = Store(path, HEAD, 4)
        for x in range(4):
            store.get(str(x), lambda x=x: square(x))
        store.finish()

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not path.exists()
    run()
    assert calls == [0, 1, 2, 3, 3]
    assert json.loads(path.read_text())["results"] == {"0": 0, "1": 1, "2": 4, "3": 9}
    assert [file.name for file in tmp_path.iterdir()] == ["squares.json"]


def test_other_parameters_start_again(tmp_path, capsys):
    path = tmp_path / "squares.json"
    Store(path, HEAD, 1).get("0", lambda: 1.0)
    other = Store(path, {"figure": "squares", "parameters": {"seed": 2}}, 1)
    assert other.get("0", lambda: 2.0) == 2.0
    assert "other parameters" in capsys.readouterr().err


def test_too_few_results_are_not_complete(tmp_path):
    with pytest.raises(RuntimeError, match="0 results, expected 2"):
        Store(tmp_path / "squares.json", HEAD, 2).finish()


def test_numbers_become_those_of_json():
    got = plain({"a": np.float64(np.nan), "b": np.arange(2.0), 3: (np.int32(1), True, "x")})
    assert got == {"a": None, "b": [0.0, 1.0], "3": [1, True, "x"]}
    assert json.dumps(got, allow_nan=False)


def test_drawing_alone_has_no_smoke_run():
    figure = Figure("none", lambda *_: None, lambda _: None, lambda _: 0, {}, {})
    with pytest.raises(SystemExit):
        figure.main(["--smoke", "--plot"])
