"""A table as Markdown, LaTeX and CSV."""

import csv
import io
import re
from collections.abc import Callable
from typing import Any

from torch_goat.experiments.tables.layout import Grid, Lines, Text, comparison_grid, main_grid, notes
from torch_goat.experiments.tables.table import ResultTable

_MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]<>|#~$])")
_MARKDOWN = {
    "plain": "{}",
    "bold": "**{}**",
    "underlined": "<ins>{}</ins>",  # Markdown has no underline of its own
    "small": "<sub>{}</sub>",
}
_LATEX_SIGNS = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "[": "{[}",  # after the end of a row these two would be read as an option of it
    "*": "{*}",
    "-": "-{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
}
_LATEX = {"plain": "{}", "bold": r"\textbf{{{}}}", "underlined": r"\underline{{{}}}", "small": r"{{\footnotesize {}}}"}


def to_markdown(table: ResultTable) -> str:
    """The table, its notes and the comparisons, as GitHub reads Markdown."""
    parts = [f"**{_markdown(table.title)}**", _markdown_grid(main_grid(table)), *map(_markdown, notes(table))]
    comparisons = comparison_grid(table)
    if comparisons is not None:
        parts += [f"{_markdown(comparisons.title)}:", _markdown_grid(comparisons)]
    return "\n\n".join(parts) + "\n"


def to_latex(table: ResultTable) -> str:
    """The table with its notes as caption, and the comparisons, as two floats."""
    caption = " ".join([f"{table.title}.", *notes(table)])
    parts = [r"% needs \usepackage{booktabs}", _latex_grid(main_grid(table), caption)]
    comparisons = comparison_grid(table)
    if comparisons is not None:
        parts.append(_latex_grid(comparisons, f"{comparisons.title}."))
    return "\n".join(parts) + "\n"


def to_csv(table: ResultTable) -> str:
    """A line per cell, with all digits; accuracies, their deviations and differences are percentages."""
    text = io.StringIO()
    records = [_record(table, row, column) for row in table.labels for column in table.headings]
    lines = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    lines.writeheader()
    lines.writerows(records)
    return text.getvalue()


FORMATS: dict[str, tuple[str, Callable[[ResultTable], str]]] = {
    "markdown": (".md", to_markdown),
    "latex": (".tex", to_latex),
    "csv": (".csv", to_csv),
}
"""How a table can be written, by name: the ending of its file and what makes the text."""


def _record(table: ResultTable, row: str, column: str) -> dict[str, Any]:
    heading, entry = table.headings[column], table.entries[row, column]
    mean, std, runs = entry.summary or (None, None, 0)
    paper, comparison = entry.published, entry.comparison
    return {
        "row": row,
        "label": table.labels[row],
        "column": column,
        "dataset": heading.dataset,
        "split": heading.split,
        "metric": heading.metric,
        "runs": runs,
        "planned": entry.planned,
        "mean": mean,
        "std": std,
        "paper_mean": paper and paper.mean,
        "paper_std": paper and paper.std,
        "difference": entry.difference,
        "place": entry.place or None,
        "baseline": comparison and comparison.other,
        "baseline_difference": comparison and comparison.difference,
        "p_value": comparison and comparison.p_value,
        "values": " ".join(f"{number}:{value!r}" for number, value in sorted(entry.values.items())),
    }


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _markdown(text: str) -> str:
    return _MARKDOWN_SIGNS.sub(r"\\\1", _one_line(text))


def _markdown_grid(grid: Grid) -> str:
    def cell(lines: Lines) -> str:
        return "<br>".join("".join(_marked(piece, _markdown, _MARKDOWN) for piece in line) for line in lines)

    rows = ["| " + " | ".join(map(cell, row)) + " |" for row in (grid.head, *grid.body)]
    return "\n".join([rows[0], "|---" + "|---:" * (len(grid.head) - 1) + "|", *rows[1:]])


def _latex(text: str) -> str:
    # Two hyphens would be set as a dash, but they begin an option of the command.
    return re.sub("-(?=-)|[^-]", lambda found: _LATEX_SIGNS.get(found[0], found[0]), _one_line(text))


def _latex_grid(grid: Grid, caption: str) -> str:
    def row(cells: list[Lines]) -> str:
        """As many lines as the longest cell has."""
        height = max(map(len, cells))
        filled = [cell + [[]] * (height - len(cell)) for cell in cells]
        texts = [["".join(_marked(piece, _latex, _LATEX) for piece in line) for line in cell] for cell in filled]
        return "\n".join(f"{' & '.join(line)} \\\\" for line in zip(*texts, strict=True))

    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(grid.head) - 1)}}}", r"\toprule", row(grid.head), r"\midrule"]
    for number, cells in enumerate(grid.body):
        lines += [r"\midrule", row(cells)] if number in grid.rules else [row(cells)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _marked(piece: Text, escape: Callable[[str], str], marks: dict[str, str]) -> str:
    return marks[piece.style].format(escape(piece.text))
