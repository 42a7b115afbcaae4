"""Runs the cells of a notebook as Jupyter would: ``python -m tests.notebooks FILE`` writes their output into the file.

Jupyter itself would be a large dependency for one notebook.
"""

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def run_cell(code: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Runs a cell and returns its outputs: what it prints, and the value of its last expression."""
    tree, printed, outputs = ast.parse(code), io.StringIO(), []
    last, names["_"] = tree.body[-1], None
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("_", ast.Store())], last.value), last)
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.fix_missing_locations(tree), f"cell {number}", "exec"), names)
    value = names["_"]
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def run_notebook(notebook: dict[str, Any]) -> None:
    """Runs all cells in the current folder, in order, and replaces their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["outputs"] = run_cell("".join(cell["source"]), names, number)
        cell["execution_count"] = number


if __name__ == "__main__":
    file = Path(sys.argv[1]).resolve()
    read = json.loads(file.read_text(encoding="utf-8"))
    os.chdir(file.parent)
    run_notebook(read)
    file.write_text(json.dumps(read, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
