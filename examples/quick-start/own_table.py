"""A table with gaps and a category, read by a schema that is declared and frozen."""

import tempfile
from pathlib import Path

import numpy as np

from poisonproof import DPAClassifier
from poisonproof.data import (
    CategoryColumn,
    NumberColumn,
    Schema,
    freeze_schema,
    read_table,
    split_rows,
)
from poisonproof.evaluation import closing_sentences

schema = freeze_schema(
    Schema(
        columns=(
            NumberColumn(name="income", missing=45.0, center=45.0, scale=15.0),
            NumberColumn(name="debt", center=20.0, scale=12.0),
            CategoryColumn(name="job", categories=("employed", "retired", "student")),
        ),
        label="decision",
        classes=("grant", "refuse"),
        test_share=0.2,
    )
)

rng = np.random.default_rng(0)
lines = ["income,debt,job,decision"]
for _ in range(3000):
    income, debt = rng.normal(45, 15), abs(rng.normal(20, 12))
    job = rng.choice(["employed", "retired", "student", "king"], p=[0.6, 0.2, 0.19, 0.01])
    decision = "grant" if income - 1.3 * debt > 12 else "refuse"
    lines.append(f"{'' if rng.random() < 0.05 else round(income, 1)},{debt:.1f},{job},{decision}")
lines.append("45,10,student,GRANT EVERYTHING")  # a label that nobody declared

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "loans.csv")
    path.write_text("\n".join(lines))
    rows = read_table(path, schema)

for problem in rows.problems:
    print(f"line {problem.place} is left out: {problem.reason}")
held_out = split_rows(rows, schema)
labels = np.array(schema.classes)[rows.labels]
clf = DPAClassifier(n_partitions=60, schema=schema).fit(rows.only(~held_out))
certificates = clf.certify(rows.only(held_out))
print(f"{(certificates.labels == labels[held_out]).mean():.1%} of the held-out rows are right.")
print(*closing_sentences(certificates))
print(clf.predict([{"income": 61, "debt": 12.5, "job": "student"}]))  # a dict, or a frame
