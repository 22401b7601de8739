"""The first rows of a table as text, for a human and for a proposal to look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from poisonproof.datasets.csv_lines import is_blank, split_line
from poisonproof.datasets.csv_rows import lines_of, read_header
from poisonproof.datasets.parquet_rows import parquet_texts
from poisonproof.datasets.reading import check_file
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import Limits

__all__ = ["MOST_ROWS", "FirstRows", "first_rows"]

MOST_ROWS = 10_000
MOST_CELLS = 10_000_000


@dataclass(frozen=True)
class FirstRows:
    """Cells by column name, None where a cell is empty.

    Attributes
    ----------
    columns : dict of str to list of (str or None)
    n_rows : int
        Rows in these lists.
    n_broken : int
        Lines among the first that are no rows.
    """

    columns: dict[str, list[str | None]]
    n_rows: int
    n_broken: int


def first_rows(path: Path) -> FirstRows:
    """Return up to 10,000 rows (fewer of a very wide table) of a CSV or Parquet file."""
    check_file(path, dict.fromkeys((".csv", ".tsv", ".parquet")))
    if path.suffix.lower() == ".parquet":
        columns = parquet_texts(path, MOST_ROWS, Limits())
        return FirstRows(columns, len(next(iter(columns.values()), [])), 0)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as file:
        header = read_header(path, file, delimiter, Limits().line)
        repeated = [name for name, count in Counter(header).items() if count > 1]
        if repeated:
            raise InvalidInputError(f"{path} has more than one column named {repeated[0][:80]!r}.")
        rows, broken = [], 0
        lines = lines_of(file, Limits().line)
        for line in islice(lines, max(1, min(MOST_ROWS, MOST_CELLS // len(header)))):
            if line is not None and is_blank(line, delimiter):
                continue
            try:
                if line is None:
                    raise ValueError("the line is too long")
                rows.append(split_line(line, delimiter, len(header)))
            except ValueError:
                broken += 1
    columns = {name: [row[j] or None for row in rows] for j, name in enumerate(header)}
    return FirstRows(columns, len(rows), broken)
