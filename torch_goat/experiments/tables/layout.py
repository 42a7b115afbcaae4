"""What is written in a table, before any markup: every way of showing it has the same words."""

from typing import Literal, NamedTuple

from torch_goat.experiments.tables.table import Entry, Heading, ResultTable

EMPTY = "–"
MINUS = "−"
BEST = f"Best bold and second best underlined, among the complete cells of a column; {EMPTY}: not run."
PAIRED = "signed-rank test on the same graphs or splits"
UNPAIRED = "rank-sum test on runs that differ by their seed"


Style = Literal["plain", "bold", "underlined", "small"]
STYLES: dict[int, Style] = {0: "plain", 1: "bold", 2: "underlined"}  # of a cell's place in its column


class Text(NamedTuple):
    """A piece of text and how it is set."""

    text: str
    style: Style = "plain"


Line = list[Text]
Lines = list[Line]  # what one cell holds


class Grid(NamedTuple):
    """Rows and columns of text."""

    title: str
    head: list[Lines]
    body: list[list[Lines]]
    rules: set[int]  # rows of the body that a line is drawn above


def main_grid(table: ResultTable) -> Grid:
    """Our numbers and the paper's."""
    body = [
        [
            [[Text(label)]],
            *(_numbers(table.entries[row, name], head, table.reference) for name, head in table.headings.items()),
        ]
        for row, label in table.labels.items()
    ]
    baseline = [row in table.baselines for row in table.labels]
    rules = {number for number in range(1, len(baseline)) if baseline[number] != baseline[number - 1]}
    return Grid(table.title, _head(table), body, rules)


def comparison_grid(table: ResultTable) -> Grid | None:
    """Our rows beside the best baselines, if there is any such comparison."""
    rows = [row for row in table.labels if any(table.entries[row, name].comparison for name in table.headings)]
    body = [[[[Text(table.labels[row])]], *(_tested(table, row, name) for name in table.headings)] for row in rows]
    return Grid(_comparisons(table), _head(table), body, set()) if rows else None


def notes(table: ResultTable) -> list[str]:
    """What a reader should know of a table."""
    lacking = [f"{head.label} ({head.dataset})" for name, head in table.headings.items() if name in table.lacking]
    published = any(entry.published for entry in table.entries.values())
    beside = f"; below it the {table.reference}'s number and our difference from it" if published else ""
    found = [f"Mean ± sample standard deviation over the runs of a cell{beside}. {BEST}"]
    if table.search.trials:
        found.append(_searched(table))
    if table.devices:
        found.append(f"Runs: {', '.join(f'{count} on {device}' for device, count in sorted(table.devices.items()))}.")
    if lacking:
        found.append(f"Not run for want of data: {', '.join(lacking)}.")
    return found + _waiting(table)


def _comparisons(table: ResultTable) -> str:
    """What our rows are tested by."""
    text = "Difference from the best baseline of the column, and p-value of the two-sided Wilcoxon"
    seeds = [head.label for head in table.headings.values() if not head.paired]
    if not seeds:
        return f"{text} {PAIRED}"
    if len(seeds) == len(table.headings):
        return f"{text} {UNPAIRED}"
    return f"{text} {PAIRED}; of {', '.join(seeds)}, of the {UNPAIRED}"


def _waiting(table: ResultTable) -> list[str]:
    """Which cells are not complete because nobody has asked for them."""
    columns: dict[str, list[str]] = {}  # by the names of the rows
    for column, head in table.headings.items():
        rows = ", ".join(row for row in table.labels if (row, column) in table.waiting)
        columns.setdefault(rows, []).append(head.label)
    found = [f"{', '.join(labels)}: {rows}" for rows, labels in columns.items() if rows]
    return [f"Run when --only names their rows: {'; '.join(found)}."] if found else []


def _searched(table: ResultTable) -> str:
    """How the settings were found."""
    number = table.search.repetitions
    judge = "graph, split or seed" if number == 1 else f"{number} graphs, splits or seeds"
    text = (
        f"The settings of every cell are the best of {table.search.trials} trials by the validation nodes of its "
        f"first {judge}"
    )
    heads = [head for head in table.headings.values() if head.finals > number]
    last = [f"{head.label}: {head.finalists} on {head.finals}" for head in heads]
    if not last:
        return f"{text}."
    return f"{text}; the best of them were repeated on more before one was chosen ({'; '.join(last)})."


def signed(value: float, decimals: int) -> str:
    """A number with its sign; one that is shown as zero has none."""
    text = f"{value:+.{decimals}f}"
    return text[1:] if not float(text) else text.replace("-", MINUS)


def _head(table: ResultTable) -> list[Lines]:
    return [
        [[Text("Method")]],
        *([[Text(head.label)], [Text(head.metric, "small")]] for head in table.headings.values()),
    ]


def _numbers(entry: Entry, heading: Heading, reference: str) -> Lines:
    if entry.summary is None:
        first = [Text(EMPTY)]
    else:
        mean, std, runs = entry.summary
        first = [Text(f"{mean:.{heading.decimals}f}", STYLES[entry.place])]
        if std is not None:
            first.append(Text(f" ± {std:.{heading.decimals}f}"))
        if runs < entry.planned:
            first.append(Text(f" ({runs} of {entry.planned} runs)"))
    lines = [first]
    if entry.published is not None:
        difference = "" if entry.difference is None else f" ({signed(entry.difference, heading.decimals)})"
        lines.append([Text(f"{reference} {entry.published.text}{difference}", "small")])
    return lines


def _tested(table: ResultTable, row: str, column: str) -> Lines:
    comparison = table.entries[row, column].comparison
    if comparison is None:
        return [[Text(EMPTY)]]
    difference = signed(comparison.difference, table.headings[column].decimals)
    return [
        [Text(f"{difference} from {table.baselines[comparison.other]}")],
        [Text(_p_value(comparison.p_value), "small")],
    ]


def _p_value(value: float | None) -> str:
    if value is None:
        return "too few runs for a test"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
