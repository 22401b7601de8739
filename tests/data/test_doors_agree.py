"""The same cells are the same rows, whether they come in a file or in memory."""

from __future__ import annotations

import gzip
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    read_table,
)
from poisonproof.partition import GroupHash, NamedSources, TimeBlocks

N = 80
COLUMNS = {
    "plain": (NumberColumn(name="plain", missing="nan"), ["1", "2.5", ""]),
    "share": (NumberColumn(name="share", missing=0.0, unit="%"), ["5 %", "7", ""]),
    "price": (NumberColumn(name="price", format="1.234,5", unit="$"), ["$1.234,5", "7"]),
    "kind": (CategoryColumn(name="kind", categories=("x", "é", "NA")), ["x", "é", "y"]),
    "true": (CategoryColumn(name="true", categories=("True", "False", "?")), ["True", "?"]),
    "text": (TextColumn(name="text", size=16), ["ab", 'a "b", c', "é"]),
    "day": (DateColumn(name="day", missing="nan", parts=("hour",)), ["2020-02-29", "20200101"]),
    "us": (DateColumn(name="us", missing="2020-01-01", format="%m/%d/%Y"), ["01/31/2020", ""]),
}
STRANGE = [
    *(
        "",
        "nan",
        "inf",
        "-0.0",
        "1e5",
        "1e999",
        "+-5",
        "0x10",
        "1_000",
        "١٢",
        "\uff15",
        "5\u00a0",
        "\t7",
    ),
    *("12.5 %", "%%", "5$", "$", "1.234.5", "1,2", "1 234,5", "NA", "N/A", "None", "true", "FALSE"),
    *(
        "e\u0301",
        "x ",
        "\x00",
        "a\rb",
        "\ufeff1",
        "\x1c1",
        "2021-02-29",
        "0000-01-01",
        "9999-12-31",
    ),
    *("2020-01-01T23:59:60", "0001-01-01T00:00+23:59", "2020-W01-1", "1/2/20", "\u22125", "9" * 30),
]
RULES = {
    "none": None,
    "source": NamedSources(["x", "é", "1"]),
    "time": TimeBlocks("2020-01-01", days=2),
    "entity": GroupHash(entities={"x": "é"}),
}


@pytest.mark.parametrize("by", RULES)
@pytest.mark.parametrize("seed", range(6))
def test_every_door_makes_the_same_rows_of_the_same_cells(
    by: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{by}{seed}")
    chosen = rng.sample(sorted(COLUMNS), 4)
    schema = freeze_schema(
        Schema(
            columns=[COLUMNS[name][0] for name in chosen],
            label="y",
            classes=("1", "x"),
            groups="who",
            weights="w",
            partition=RULES[by],
            missing_texts=("NA", "N/A"),
        )
    )
    usual = {name: COLUMNS[name][1] for name in chosen}
    usual |= {"y": ["1", "x"], "who": ["x", "1", "é", "2020-01-05"], "w": ["1", "0.5"]}
    cells = {
        name: [rng.choice(STRANGE if rng.random() < 0.1 else known) for _ in range(N)]
        for name, known in usual.items()
    }
    expected = None
    for name, door in doors(cells, tmp_path).items():
        rows = read_table(door, schema)
        shift = 2 * (rows.unit == "line")
        found = (
            rows.X.tobytes(),
            rows.labels.tolist(),
            list(rows.groups),
            rows.weights.tolist(),
            (rows.places - shift).tolist(),
            [(problem.place - shift, problem.label) for problem in rows.problems],
        )
        assert len(rows) > 5
        expected = expected or found
        assert found == expected, name


def doors(cells: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    """Return the same cells in files and in memory."""
    lines = [list(cells), *zip(*cells.values(), strict=True)]
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines]
    content = ("\n".join(quoted) + "\n").encode()
    (folder / "rows.csv").write_bytes(content)
    half = len(content) // 2
    packed = gzip.compress(content[:half]) + gzip.compress(content[half:])
    (folder / "rows.csv.gz").write_bytes(packed)
    (folder / "rows.csv.zst").write_bytes(pa.compress(content, codec="zstd", asbytes=True))
    present = {name: [cell or None for cell in column] for name, column in cells.items()}
    table = pa.table({name: pa.array(column, pa.string()) for name, column in present.items()})
    pq.write_table(table, folder / "rows.parquet")
    objects = pd.DataFrame({n: pd.Series(column, dtype=object) for n, column in cells.items()})
    return {
        **{path.name: path for path in sorted(folder.iterdir())},
        "arrow": table,
        "objects": objects,
        "strings": pd.DataFrame(present).astype("string"),
        "categories": objects.astype("category")[list(cells)[::-1]].set_axis([0] * N),
        "polars": pl.DataFrame(present, schema=dict.fromkeys(cells, pl.String)),
        "dicts": objects.to_dict("records"),
    }


def encoded(column: Any, values: list[Any], kind: Any = object) -> list[list[float]]:
    frame = pd.DataFrame({column.name: pd.Series(values, dtype=kind)})
    return read_table(frame, freeze_schema(Schema(columns=[column]))).X.tolist()


@pytest.mark.parametrize("names", [("True", "False", "unknown"), ("false", "true"), ("TRUE", "?")])
def test_truth_values_are_categories_by_whatever_type_a_frame_has(names: tuple[str, ...]) -> None:
    """One text turns a column of truth values into texts, those of all other rows."""
    column = CategoryColumn(name="member", categories=names)
    values = [True, False, True]
    expected = encoded(column, values, bool)
    assert encoded(column, values) == expected
    assert encoded(column, ["True", "False", "True"]) == expected
    assert encoded(column, [*values, "unheard of"])[:3] == expected
    assert expected[0] != expected[1]
    digits = CategoryColumn(name="digit", categories=("0", "1", "2"))
    assert encoded(digits, ["1", "True"]) == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_numbers_in_memory_need_no_declared_point() -> None:
    column = NumberColumn(name="price", format="1.234,5")
    values = [1.5, np.float32(1.5), Decimal("1.234"), np.int64(7), True, 10**30, 1e-7]
    assert encoded(column, values) == [[1.5], [1.5], [1.234], [7], [1], [1e30], [1e-7]]
    assert encoded(column, ["1.234", "1,234"]) == [[1234], [1.234]]


def test_a_row_of_a_list_that_is_no_row_is_rejected_alone() -> None:
    schema = freeze_schema(Schema(columns=[NumberColumn(name="a"), NumberColumn(name="b")]))
    strange = [pd.DataFrame({"a": [1]}), None, object(), [1], np.zeros((2, 2)), {"a": [1], "b": 2}]
    rows = read_table([[1, 2], *strange, {"a": 1, "b": 2}], schema)
    assert rows.X.tolist() == [[1, 2], [1, 2]]
    assert [problem.place for problem in rows.problems] == [1, 2, 3, 4, 5, 6]
