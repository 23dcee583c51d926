"""The notebooks run from top to bottom, and what they show is what they were committed with."""

import copy
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = ["first_exchange.ipynb"]
CELL_SECONDS = 60


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """The text output of every code cell, numbers of processes and addresses left out."""
    texts = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
        texts.append(re.sub(r"0x[0-9a-f]+|\b\d{5,}\b", "N", "".join(parts)))
    return texts


def test_every_notebook_is_listed(repository: Path) -> None:
    assert sorted(p.name for p in (repository / "notebooks").glob("*.ipynb")) == NOTEBOOKS


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(
    repository: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    committed = nbformat.read(repository / "notebooks" / name, as_version=4)
    executed = copy.deepcopy(committed)
    NotebookClient(executed, timeout=CELL_SECONDS, kernel_name="python3").execute(cwd=str(tmp_path))
    assert shown(executed) == shown(committed)
