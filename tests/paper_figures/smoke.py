"""The short run of a figure, as the command line does it."""

import json

from paper_figures.common import Figure


def smoke_results(figure: Figure, folder) -> dict:
    """The results of `--smoke`; the picture is there and no partial file is left."""
    assert figure.main(["--smoke", "--folder", str(folder)]) == 0
    data = json.loads((folder / "results" / f"{figure.name}.json").read_text())
    assert data["parameters"] == figure.smoke
    assert "jax" in data["versions"]
    assert (folder / "pictures" / f"{figure.name}.png").stat().st_size > 5_000
    assert not list(folder.glob("**/*.partial.json"))
    return data["results"]


def committed_results(figure: Figure) -> dict:
    """The results in the repository, which are those of the parameters in the script."""
    from paper_figures.common import FOLDER

    data = json.loads((FOLDER / "results" / f"{figure.name}.json").read_text())
    assert data["parameters"] == json.loads(json.dumps(figure.full))
    assert (FOLDER / "pictures" / f"{figure.name}.png").stat().st_size > 5_000
    return data["results"]
