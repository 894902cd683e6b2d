"""Results survive an interruption, and are read again only for the same parameters."""

import json

import numpy as np
import pytest

from paper_figures import common
from paper_figures.common import Figure, Store, deviations, plain

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


def test_a_check_pauses_continues_and_finds_a_changed_number(tmp_path, monkeypatch, capsys):
    values, calls = [1.0, 4.0], []

    def compute(store, _):
        for name, value in zip("ab", values, strict=True):
            store.get(name, lambda name=name, value=value: calls.append(name) or value)

    figure = Figure("squares", compute, lambda _: None, lambda _: 2, {"n": 2}, {}, rtol=1e-6)
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    committed = Store(tmp_path / "results" / "squares.json", {"parameters": {"n": 2}}, 2)
    compute(committed, {})
    committed.finish()
    calls.clear()
    check = ["--check", "--folder", str(tmp_path / "again")]
    assert figure.main([*check, "--results", "1"]) == 3
    assert figure.main(check) == 0
    assert calls == ["a", "b"]
    values[1] = 4.1
    assert figure.main(check) == 1
    assert "/b: 4.0 is committed, now 4.1" in capsys.readouterr().out


def test_deviations_leave_out_times_and_see_names_lengths_and_what_is_not_finite():
    old = {"a": [1.0, None], "seconds": 1.0, "b": 1}
    new = {"a": [1.0 + 1e-8, 0.0, 2.0], "seconds": 2.0, "c": 1}
    found = deviations(old, new, 1e-6, lambda _: 0.0, lambda name: name == "seconds")
    assert sorted(found) == [
        "/a differs in length",
        "/a/1: None is committed, now 0.0",
        "/b is only in one",
        "/c is only in one",
    ]
