"""The notebooks run from top to bottom, and what they show is what they were committed with.

Cells with the tag `varies` show what differs from machine to machine: they are committed without it (.ci/notebooks), and
what they say is checked in the notebook itself.
"""

import copy
import re

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = [
    "first_exchange.ipynb",
    "kernels.ipynb",
    "measuring.ipynb",
    "one_sided.ipynb",
    "queue_pairs.ipynb",
    "routes.ipynb",
    "streams.ipynb",
    "tour.ipynb",
]
CELL_SECONDS = 60
FIVE_MINUTES = 1400  # words; code is read more slowly


def varies(cell: nbformat.NotebookNode) -> bool:
    return "varies" in cell.metadata.get("tags", [])


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """The text output of every code cell, numbers of processes and addresses left out."""
    texts = []
    for cell in notebook.cells:
        outputs = [] if varies(cell) else cell.get("outputs", [])
        parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
        texts.append(re.sub(r"0x[0-9a-f]+|\b\d{5,}\b", "N", "".join(parts)))
    return texts


def test_every_notebook_is_listed(repository):
    assert sorted(p.name for p in (repository / "notebooks").glob("*.ipynb")) == NOTEBOOKS


@pytest.fixture(autouse=True)
def nothing_of_the_user(tmp_path, monkeypatch):
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_kept_small(repository, name):
    notebook = nbformat.read(repository / "notebooks" / name, as_version=4)
    assert sum(len(cell.source.split()) for cell in notebook.cells) < FIVE_MINUTES
    for cell in notebook.cells:
        assert not varies(cell) or not cell.outputs
        for output in cell.get("outputs", []):
            assert output.output_type in ("stream", "execute_result"), cell.source
            assert output.get("data", {}).keys() <= {"text/plain"}, cell.source


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(repository, name, tmp_path):
    committed = nbformat.read(repository / "notebooks" / name, as_version=4)
    executed = copy.deepcopy(committed)
    NotebookClient(executed, timeout=CELL_SECONDS, kernel_name="python3").execute(cwd=str(tmp_path))
    assert shown(executed) == shown(committed)
    for cell in executed.cells:  # a drawing for each object that shows one, by the cells that vary
        for output in cell.get("outputs", []):
            drawn = output.get("data", {}).get("text/html", "<")
            assert drawn.startswith("<"), cell.source
