"""A model knows its schema: frames, dicts, rows and files with the same cells are the same."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler

import poisonproof
from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    read_table,
    split_rows,
)
from poisonproof.data.schema import dump_schema
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.weights import WalkWeights

N = 400
PLAIN = Schema(
    columns=(
        NumberColumn(name="age", missing=40.0, center=40.0, scale=15.0),
        CategoryColumn(name="job", categories=("cook", "smith")),
        CategoryColumn(name="member", categories=("False", "True")),
        DateColumn(name="joined", missing="2020-01-01"),
        TextColumn(name="note", size=32),
    ),
    label="kind",
    classes=("good", "bad"),
    ignore=("id",),
    test_share=0.2,
)
SCHEMA = freeze_schema(PLAIN)


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n).astype(float)
    age[rng.random(n) < 0.1] = np.nan
    bad = rng.random(n) < 0.5
    job = np.where(bad, "cook", "smith").astype(object)
    job[::7], job[::11] = "king", None
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    joined = pd.Series(days)
    joined[::13] = pd.NaT
    return pd.DataFrame(
        {
            "id": range(n),
            "joined": joined,
            "age": age,
            "job": job,
            "member": rng.random(n) < 0.5,
            "note": np.where(bad, "late again", "paid in time"),
            "kind": np.where(bad, "bad", "good"),
        }
    )


def to_csv(table: pd.DataFrame, path: Any) -> Any:
    table.to_csv(path, index=False, quoting=csv.QUOTE_MINIMAL)
    return path


FORMS = {
    "polars": pl.from_pandas,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "dicts": lambda table: table.to_dict("records"),
    "objects": lambda table: table.astype(object),
    "other order": lambda table: table[list(table)[::-1]],
    "rows": lambda table: [
        list(row) for row in table[[c.name for c in SCHEMA.columns]].itertuples(index=False)
    ],
}


@pytest.fixture(scope="module")
def fitted() -> DPAClassifier:
    return DPAClassifier(n_partitions=7, schema=SCHEMA).fit(people())


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form_get_the_votes_of_the_file(form, fitted, tmp_path):
    table = people(60, seed=1)
    path = to_csv(table, tmp_path / "new.csv")
    expected = fitted.votes(read_table(path, SCHEMA, labelled=False))
    assert np.array_equal(fitted.votes(FORMS[form](table)), expected)
    assert np.array_equal(fitted.votes(table.drop(columns=["kind", "id"])), expected)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "rows"])
def test_training_rows_in_any_form_make_the_model_of_the_file(form, fitted):
    again = clone(fitted).fit(FORMS[form](people()))
    assert model_fingerprint(again) == model_fingerprint(fitted)


DOORS = {
    "dpa": ("-k 7 --keep-data", DPAClassifier(n_partitions=7)),
    "ss-dpa": ("-k 7 --scale", SSDPAClassifier(ScaledKernelClassifier(), StandardScaler(), 7)),
    "neighbors": ("--cosine 0.85", NeighborVoteClassifier(threshold=0.85)),
    "clusters": (
        "--clusters 6 --clusterer kmeans",
        ClusterVoteClassifier(None, 6, clusterer="kmeans"),
    ),
    "walks": ("--neighbors 20", WeightedVoteClassifier(weights=WalkWeights(20))),
}


@pytest.mark.parametrize("method", DOORS)
def test_the_command_line_and_python_train_the_same_model_by_a_schema(
    method, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_bytes(dump_schema(SCHEMA))
    table, new, more = people(), people(40, seed=1), people(20, seed=2)
    to_csv(table, "rows.csv")
    to_csv(new, "new.csv")
    to_csv(more, "more.csv")
    options, classifier = DOORS[method]

    def run(*words: str) -> str:
        said = cli(*" ".join(words).split())
        assert said.code == 0, said.err
        return " ".join(said.out.split())

    run(f"train rows.csv --schema s.json --method {method} {options} --out model")
    clf = classifier.set_params(schema=SCHEMA).fit(table)
    loaded = poisonproof.load("model")
    assert model_fingerprint(loaded) == model_fingerprint(clf)
    assert (loaded.schema, loaded.n_dropped_) == (SCHEMA, clf.n_dropped_)
    assert np.array_equal(loaded.predict(new), clf.predict(new))
    clf.save("saved", **({"keep_data": True} if method == "dpa" else {}))
    run("certify saved new.csv --label kind --rows-out rows-out.csv")
    radius = pd.read_csv("rows-out.csv")["radius"]
    assert radius.tolist() == loaded.certify(new, require_declared=True).radius.tolist()
    run("predict saved new.csv --out labels.csv")
    assert pd.read_csv("labels.csv")["label"].tolist() == clf.predict(new).tolist()
    assert model_fingerprint(clf) in run("report saved new.csv --out report.html")
    assert "nothing wrong" in run("audit saved --data rows.csv --sample 2")
    assert audit_model("model", table, sample=2).passed
    if method not in ("clusters", "walks"):  # these are trained again
        keeps = "" if method == "neighbors" else "--data rows.csv"
        run("update saved --add more.csv", keeps if method == "ss-dpa" else "")
        clf.update(add=more)
        assert model_fingerprint(poisonproof.load("saved")) == model_fingerprint(clf)


def test_a_row_that_does_not_fit_is_named_in_predict(fitted):
    new = people(5, seed=1).to_dict("records")
    new[3]["age"] = "old"
    with pytest.raises(InvalidRowsError, match=r"X, row 3: column 'age': 'old' is not a number"):
        fitted.predict(new)
    new[3] = {"age": 3, "surprise": 1}
    with pytest.raises(InvalidRowsError, match="row 3: it has 'surprise', which the schema does"):
        fitted.certify(new)
    with pytest.raises(InvalidRowsError, match="row 1: it has 2 cells where the schema has 5"):
        fitted.votes([[1, "cook", True, None, ""], [1, 2]])
    with pytest.raises(InvalidInputError, match="no column 'joined'"):
        fitted.predict(people(5).drop(columns="joined"))


def test_rows_that_do_not_fit_are_left_out_or_raise_as_the_schema_says():
    table = people().astype({"age": object})
    table.loc[3, "age"], table.loc[5, "kind"] = "old", "ugly"
    clf = DPAClassifier(n_partitions=5, schema=SCHEMA).fit(table)
    assert clf.n_dropped_ == 2
    with pytest.raises(InvalidRowsError, match="X, row 3"):
        clone(clf).set_params(invalid_rows="raise").fit(table)
    strict = freeze_schema(replace(PLAIN, invalid_rows="raise"))
    with pytest.raises(InvalidRowsError, match="X, row 3"):
        clone(clf).set_params(schema=strict).fit(table)
    with pytest.raises(GuaranteeError, match="the label 'ugly'"):
        SSDPAClassifier(n_partitions=5, schema=SCHEMA).fit(table)


def test_labels_contributors_and_weights_come_from_columns_or_apart():
    table = people().assign(user=lambda t: t["id"] % 50, trust=1.0)
    known = freeze_schema(replace(PLAIN, groups="user", weights="trust"))
    parameters = {"n_partitions": 5, "partitioner": "group", "schema": known}
    whole = DPAClassifier(**parameters).fit(table)
    assert whole.n_groups_ == len(set(table["user"][~_held_out(table, known)]))
    y, groups = table["kind"].tolist(), table["user"].to_numpy()
    apart = DPAClassifier(**parameters).fit(
        table.drop(columns=["kind", "user"]), y, groups=groups, sample_weight=table["trust"]
    )
    assert model_fingerprint(apart) == model_fingerprint(whole)
    with pytest.raises(InvalidInputError, match="partitioner='group'"):
        DPAClassifier(n_partitions=5, schema=known).fit(table)
    with pytest.raises(InvalidInputError, match="no groups and no weights"):
        NeighborVoteClassifier(schema=known).fit(table)


def _held_out(table: pd.DataFrame, schema: Schema) -> Any:
    return split_rows(read_table(table, schema), schema)


def test_rows_held_out_by_the_schema_are_not_trained_on(fitted):
    rows = read_table(people(), SCHEMA)
    held_out = split_rows(rows, SCHEMA)
    assert fitted.partition_sizes_.sum() == (~held_out).sum() < N
    labels = people()["kind"].to_numpy()[rows.places]
    for given in ((rows.only(~held_out),), (rows,), (rows, labels)):
        again = DPAClassifier(n_partitions=7, schema=SCHEMA).fit(*given)
        assert model_fingerprint(again) == model_fingerprint(fitted)
    assert len(again.certify(rows.only(held_out)).radius) == held_out.sum()


def test_a_schema_without_columns_takes_the_numbers_of_the_frame(tmp_path):
    table = people()[["age", "id", "kind"]]
    schema = Schema(label="kind", classes=("good", "bad"), ignore=("id",))
    clf = DPAClassifier(n_partitions=5, schema=schema).fit(table)
    assert [column.name for column in clf.schema_.columns] == ["age"]
    clf.save(tmp_path / "m")
    assert np.array_equal(poisonproof.load(tmp_path / "m").votes(table), clf.votes(table))


def test_scikit_learn_clones_and_scores_a_classifier_with_a_schema():
    table = people()
    clf = DPAClassifier(LogisticRegression(), n_partitions=5, schema=SCHEMA)
    assert cross_val_score(clf, table, table["kind"], cv=3).min() > 0.9


def test_a_proposal_is_refused_until_somebody_freezes_it(tmp_path):
    table = people()
    proposed = Schema.propose(table, label="kind", ignore=["id"], text=["note"])
    from poisonproof.data.proposing import ProposalOptions, propose_table

    options = ProposalOptions(label="kind", ignore=("id",), text=("note",), test_share=0.0)
    path = to_csv(table.assign(member=table["member"].astype(int)), tmp_path / "rows.csv")
    assert proposed == propose_table(path, options).schema
    for other in (pl.from_pandas(table), pa.Table.from_pandas(table)):
        assert Schema.propose(other, label="kind", ignore=["id"], text=["note"]) == proposed
    clf = DPAClassifier(n_partitions=5, schema=proposed)
    with pytest.raises(GuaranteeError, match=r"freeze_schema\(schema\)"):
        clf.fit(table)
    clf.set_params(schema=freeze_schema(proposed)).fit(table)
    assert clf.score(table, table["kind"]) > 0.9
    with pytest.raises(InvalidInputError, match="propose takes label"):
        Schema.propose(table, label="kind", colour="red")
    with pytest.raises(InvalidInputError, match=r"schema is a poisonproof\.data\.Schema"):
        DPAClassifier(schema="schema.json").fit(table)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_predict_passes_columns_through_to_its_output(kind, cli, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    table = people(30, seed=1).astype({"age": object}).assign(place="here")
    table.loc[4, "age"] = "old"
    to_csv(table, tmp_path / "new.csv")
    table.astype({"age": str}).replace({"age": {"nan": None}}).to_parquet(tmp_path / "new.parquet")
    said = cli(
        *("predict", tmp_path / "model", tmp_path / f"new.{kind}", "--id", "place,id,job"),
        *("--out", tmp_path / "out.csv"),
    )
    assert said.code == 0, said.err
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found)[1:6] == ["place", "id", "job", "label", "votes"]
    assert found["id"].tolist() == list(range(30))
    assert set(found["place"]) == {"here"}
    assert found["job"].fillna("").tolist() == table["job"].fillna("").tolist()
    assert found["radius"][4] == -1
    assert "'old' is not a number" in found["rejected"][4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--id label", "--id label: a column of the output has that name"),
        ("--id nobody", "has no column 'nobody'"),
    ],
)
def test_predict_says_which_columns_cannot_be_passed_through(words, message, cli, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    path = to_csv(people(5), tmp_path / "new.csv")
    said = cli("predict", tmp_path / "model", path, *words.split(), "--out", tmp_path / "o.csv")
    assert said.code == 2
    assert message in " ".join(said.err.split())


def test_the_command_line_refuses_types_that_nobody_declared(cli, tmp_path):
    table = people().drop(columns="kind")
    table["job"] = table["job"].astype(pd.CategoricalDtype(["cook", "smith", "king"]))
    clf = DPAClassifier(n_partitions=5, classes=["bad", "good"]).fit(table, people()["kind"])
    clf.save(tmp_path / "model")
    path = to_csv(people(20), tmp_path / "new.csv")
    for command in ("predict", "certify"):
        said = cli(command, tmp_path / "model", path, "--label", "kind")
        assert said.code == 2
        assert "nobody has declared" in " ".join(said.err.split())
