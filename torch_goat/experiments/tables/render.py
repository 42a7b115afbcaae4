"""Result tables as text: first a grid without markup, then Markdown, LaTeX and CSV, all with the same words."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from torch_goat.experiments.recipes import Rung
from torch_goat.experiments.tables.table import Entry, Heading, ResultTable
from torch_goat.files import csv_text

EMPTY = "–"
MINUS = "−"
BEST = f"Best bold and second best underlined, among the complete cells of a column; {EMPTY}: not run."
PAIRED = "signed-rank test on the same graphs or splits"
UNPAIRED = "rank-sum test on runs that differ by their seed"
_MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]<>|#~$])")
_MARKDOWN = {"plain": "{}", "bold": "**{}**", "underlined": "<ins>{}</ins>", "small": "<sub>{}</sub>"}
_LATEX_SIGNS = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "[": "{[}",  # at the start of a row, these two would be read as an option of the row break before
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

Style = Literal["plain", "bold", "underlined", "small"]
STYLES: dict[int, Style] = {0: "plain", 1: "bold", 2: "underlined"}  # of a cell's place in its column


class StyledText(NamedTuple):
    text: str
    style: Style = "plain"


CellText = list[list[StyledText]]  # the lines of one cell


class Grid(NamedTuple):
    title: str
    head: list[CellText]
    body: list[list[CellText]]
    rules: set[int]  # rows of the body with a rule above them


def main_grid(table: ResultTable) -> Grid:
    """The grid of our numbers and the published ones."""
    body = [
        [
            [[StyledText(label)]],
            *(_numbers(table.entries[row, name], head, table.reference) for name, head in table.headings.items()),
        ]
        for row, label in table.labels.items()
    ]
    baseline = [row in table.baselines for row in table.labels]
    rules = {number for number in range(1, len(baseline)) if baseline[number] != baseline[number - 1]}
    return Grid(table.title, _head(table), body, rules)


def comparison_grid(table: ResultTable) -> Grid | None:
    """The grid of comparisons with the best baselines, if there are any."""
    rows = [row for row in table.labels if any(table.entries[row, name].comparison for name in table.headings)]
    body = [
        [[[StyledText(table.labels[row])]], *(_tested(table, row, name) for name in table.headings)] for row in rows
    ]
    return Grid(_comparisons(table), _head(table), body, set()) if rows else None


def notes(table: ResultTable) -> list[str]:
    lacking = [f"{head.label} ({head.dataset})" for name, head in table.headings.items() if name in table.lacking]
    published = any(entry.published for entry in table.entries.values())
    beside = f"; below it the {table.reference}'s number and our difference from it" if published else ""
    found = [f"Mean ± sample standard deviation over the runs of a cell{beside}. {BEST}"]
    if any(entry.tau is not None for entry in table.entries.values()):
        found.append("tau: mean absolute Kendall rank correlation of the best head's order with the hidden key.")
    if table.search.trials:
        found.append(_searched(table))
    if table.devices:
        found.append(f"Runs: {', '.join(f'{count} on {device}' for device, count in sorted(table.devices.items()))}.")
    if lacking:
        found.append(f"Not run for want of data: {', '.join(lacking)}.")
    return found + _waiting(table)


def _comparisons(table: ResultTable) -> str:
    text = "Difference from the best baseline of the column, and p-value of the two-sided Wilcoxon"
    seeds = [head.label for head in table.headings.values() if not head.paired]
    if not seeds:
        return f"{text} {PAIRED}"
    if len(seeds) == len(table.headings):
        return f"{text} {UNPAIRED}"
    return f"{text} {PAIRED}; of {', '.join(seeds)}, of the {UNPAIRED}"


def _waiting(table: ResultTable) -> list[str]:
    columns: dict[str, list[str]] = {}  # by the names of the rows
    for column, head in table.headings.items():
        rows = ", ".join(row for row in table.labels if (row, column) in table.waiting)
        columns.setdefault(rows, []).append(head.label)
    found = [f"{', '.join(labels)}: {rows}" for rows, labels in columns.items() if rows]
    return [f"Run when --only names their rows: {'; '.join(found)}."] if found else []


def _searched(table: ResultTable) -> str:
    search, number = table.search, table.search.repetitions
    judge = "graph, split or seed" if number == 1 else f"{number} graphs, splits or seeds"
    if search.column:
        numbers = ", ".join(str(search.first + one) for one in range(number))
        return (
            f"The settings of every row, the same in all columns, are the best of {search.trials} trials by the "
            f"validation nodes of {search.column}, graph, split and seed {numbers}."
        )
    text = f"The settings of every cell are the best of {search.trials} trials by the validation nodes"
    rungs = {head.label: head.rungs for head in table.headings.values()}
    if any(rung.epochs for entered in rungs.values() for rung in entered):
        rounds = "; ".join(f"{label}: {_rounds(entered, search.trials)}" for label, entered in rungs.items())
        return f"{text}, by successive halving: so many trials on so many splits or seeds ({rounds})."
    text += f" of its first {judge}"
    last = "; ".join(
        f"{label}: {_rounds(entered[1:], search.trials)}" for label, entered in rungs.items() if entered[1:]
    )
    return f"{text}; the best of them were repeated on more before one was chosen ({last})." if last else f"{text}."


def _rounds(rungs: Sequence[Rung], trials: int) -> str:
    """``"40 on 1 for 300 epochs, 10 on 3"``."""
    rounds = [f"{min(one.trials or trials, trials)} on {one.repetitions}" for one in rungs]
    return ", ".join(
        text + (f" for {one.epochs} epochs" if one.epochs else "") for text, one in zip(rounds, rungs, strict=True)
    )


def signed(value: float, decimals: int) -> str:
    """A number with its sign, except for one that is shown as zero."""
    text = f"{value:+.{decimals}f}"
    return text[1:] if not float(text) else text.replace("-", MINUS)


def _head(table: ResultTable) -> list[CellText]:
    return [
        [[StyledText("Method")]],
        *([[StyledText(head.label)], [StyledText(head.metric, "small")]] for head in table.headings.values()),
    ]


def _numbers(entry: Entry, heading: Heading, reference: str) -> CellText:
    if entry.summary is None:
        first = [StyledText(EMPTY)]
    else:
        mean, std, runs = entry.summary
        first = [StyledText(f"{mean:.{heading.decimals}f}", STYLES[entry.place])]
        if std is not None:
            first.append(StyledText(f" ± {std:.{heading.decimals}f}"))
        if runs < entry.planned:
            first.append(StyledText(f" ({runs} of {entry.planned} runs)"))
    lines = [first]
    if entry.tau is not None:
        lines.append([StyledText(f"tau {entry.tau:.2f}", "small")])
    if entry.published is not None:
        difference = "" if entry.difference is None else f" ({signed(entry.difference, heading.decimals)})"
        lines.append([StyledText(f"{reference} {entry.published.text}{difference}", "small")])
    return lines


def _tested(table: ResultTable, row: str, column: str) -> CellText:
    comparison = table.entries[row, column].comparison
    if comparison is None:
        return [[StyledText(EMPTY)]]
    difference = signed(comparison.difference, table.headings[column].decimals)
    chance = "too few runs for a test"
    if comparison.p_value is not None:
        chance = "p < 0.001" if comparison.p_value < 0.001 else f"p = {comparison.p_value:.3f}"
    return [[StyledText(f"{difference} from {table.baselines[comparison.other]}")], [StyledText(chance, "small")]]


def to_markdown(table: ResultTable) -> str:
    """The table, its notes and the comparisons in GitHub's Markdown."""
    parts = [f"**{_markdown(table.title)}**", _markdown_grid(main_grid(table)), *map(_markdown, notes(table))]
    comparisons = comparison_grid(table)
    if comparisons is not None:
        parts += [f"{_markdown(comparisons.title)}:", _markdown_grid(comparisons)]
    return "\n\n".join(parts) + "\n"


def to_latex(table: ResultTable) -> str:
    """The table, with its notes as caption, and the comparisons as two floats."""
    caption = " ".join([f"{table.title}.", *notes(table)])
    parts = [r"% needs \usepackage{booktabs}", _latex_grid(main_grid(table), caption)]
    comparisons = comparison_grid(table)
    if comparisons is not None:
        parts.append(_latex_grid(comparisons, f"{comparisons.title}."))
    return "\n".join(parts) + "\n"


def to_csv(table: ResultTable) -> str:
    """One line per cell with all digits; accuracies, their deviations and differences are percentages."""
    records = [_record(table, row, column) for row in table.labels for column in table.headings]
    return csv_text([records[0], *(record.values() for record in records)])


FORMATS: dict[str, tuple[str, Callable[[ResultTable], str]]] = {
    "markdown": (".md", to_markdown),
    "latex": (".tex", to_latex),
    "csv": (".csv", to_csv),
}
"""Output formats by name: the suffix of the file and the function that makes the text."""


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
        "tau": entry.tau,
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
    def cell(lines: CellText) -> str:
        return "<br>".join("".join(_marked(piece, _markdown, _MARKDOWN) for piece in line) for line in lines)

    rows = ["| " + " | ".join(map(cell, row)) + " |" for row in (grid.head, *grid.body)]
    return "\n".join([rows[0], "|---" + "|---:" * (len(grid.head) - 1) + "|", *rows[1:]])


def _latex(text: str) -> str:
    # Two hyphens would become a dash, but they start a command-line option.
    return re.sub("-(?=-)|[^-]", lambda found: _LATEX_SIGNS.get(found[0], found[0]), _one_line(text))


def _latex_grid(grid: Grid, caption: str) -> str:
    def row(cells: list[CellText]) -> str:
        height = max(map(len, cells))
        filled = [cell + [[]] * (height - len(cell)) for cell in cells]
        texts = [["".join(_marked(piece, _latex, _LATEX) for piece in line) for line in cell] for cell in filled]
        return "\n".join(f"{' & '.join(line)} \\\\" for line in zip(*texts, strict=True))

    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(grid.head) - 1)}}}", r"\toprule", row(grid.head), r"\midrule"]
    for number, cells in enumerate(grid.body):
        lines += [r"\midrule", row(cells)] if number in grid.rules else [row(cells)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _marked(piece: StyledText, escape: Callable[[str], str], marks: dict[str, str]) -> str:
    return marks[piece.style].format(escape(piece.text))
