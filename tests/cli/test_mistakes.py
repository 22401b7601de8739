"""Plausible mistakes, each with one clear line: what is wrong, what is allowed, what to do."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    certify_scores,
    certify_votes,
    load,
)
from poisonproof.cli._app import run
from poisonproof.estimators import certify_runoff
from poisonproof.evaluation import certified_accuracy
from poisonproof.exceptions import GuaranteeError, MemberWarning
from tests.cli.conftest import Cli, mails, write_csv
from tests.data.test_proposing_messy import messy

TRAIN = "--label kind --classes ham,spam --out m"
HEADER = ["length", "links", "kind"]


class OwnTree(DecisionTreeClassifier):
    """A member of the user's own."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files and models as they lie around after an afternoon."""
    here = tmp_path_factory.mktemp("mistakes")
    body = [[a, b, kind] for a, b, _, _, kind in mails(200, 0)]
    tables: dict[str, tuple[list[str], list[list[Any]]]] = {
        "train": (HEADER, body),
        "swapped": (HEADER[::-1], [row[::-1] for row in body[:30]]),
        "few": (["length", "kind"], [[row[0], row[2]] for row in body[:30]]),
        "more": ([*HEADER, "more"], [[*row, 1] for row in body[:30]]),
        "prices": (HEADER, [[a, b, f"{a}9"] for a, b, _ in body]),
        "unlabelled": (HEADER, [[a, b, ""] for a, b, _ in body[:3]] + body),
        "twice": (["length", "length", "kind"], body),
        "header": (HEADER, []),
        "texts": (["body", "kind"], [["see you", kind] for *_, kind in body]),
        "users": ([*HEADER, "user"], [[*row, f"u{i % 5}"] for i, row in enumerate(body)]),
    }
    for name, (header, rows) in tables.items():
        write_csv(here / f"{name}.csv", header, rows)
    text = (here / "train.csv").read_text()
    (here / "semicolons.csv").write_text(text.replace(",", ";"))
    (here / "latin.csv").write_bytes(text.replace("ham", "grün").encode("latin-1"))
    for name, content in {"empty.csv": "", "afile": "x", "broken.json": "{"}.items():
        (here / name).write_text(content)
    (here / "folder").mkdir()
    (here / "model.pkl").write_bytes(pickle.dumps({"a": 1}))
    np.save(here / "scores.npy", np.full((5, 10), 0.5))
    np.save(here / "votes.npy", np.ones((5, 10), dtype=int))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for command in (
            "schema train.csv --label kind --out proposed.json",
            "schema train.csv --label kind --out frozen.json",
            "schema frozen.json --freeze",
            "train train.csv --label kind --classes ham,spam -k 5 --out model",
            "train train.csv --label kind --classes ham,spam --method clusters --out clusters",
            "train users.csv --label kind --classes ham,spam --groups user -k 3 --out users",
        ):
            assert run(command.split()) == 0, command
        X, y = digits()
        DPAClassifier(OwnTree(), 3, classes=range(10)).fit(X, y).save("own")
    frozen = json.loads((here / "frozen.json").read_text())
    for name, change in {"changed": {"test_share": 0.5}, "misspelt": {"clases": []}}.items():
        (here / f"{name}.json").write_text(json.dumps(frozen | change))
    return here


COMMANDS = {
    # what is typed: what the line says
    f"tran train.csv {TRAIN}": "No such command 'tran'. Did you mean 'train'?",
    "frobnicate": "The commands are demo, schema, plan, train,",
    f"train train.csv --partition 5 {TRAIN}": "--partitioner, --partitions",
    f"train train.csv --colour red {TRAIN}": "No such option: --colour",
    f"train train.csv folder {TRAIN}": "unexpected extra argument(s) (folder)",
    "train train.csv --label kind --classes ham,spam": "Missing option '--out'",
    "train train.csv --classes ham,spam --out m": "Name the column with the labels: --label",
    "train train.csv --label kind --out m": "must be declared, for example --classes ham,spam",
    "train train.csv --label kynd --classes ham,spam --out m": "no column 'kynd'. Its columns are",
    "train prices.csv --label kind --classes low,high --out m": "is not one of the declared",
    f"train unlabelled.csv {TRAIN}": "line 2: the label is missing (column 'kind')",
    "train train.csv --label kind --classes hamm,spam --out m": "declared classes 'hamm', 'spam'",
    "train train.csv --label kind --classes spam,eggs --out m": "declared classes 'spam', 'eggs'",
    "train train.csv --label kind --classes ham --out m": "At least two classes are needed.",
    "train train.csv --label kind --classes ham,ham --out m": "The classes list 'ham' twice.",
    f"train train.csv -k 0 {TRAIN}": "greater than or equal to 1. Got '0'",
    f"train train.csv -k -5 {TRAIN}": "greater than or equal to 1. Got '-5'",
    f"train train.csv -k many {TRAIN}": "a valid integer, unable to parse string as an integer. "
    "Got 'many'",
    f"train semicolons.csv {TRAIN}": "no column 'kind'",
    "train latin.csv --label kind --classes grün,spam --out m": "is not UTF-8",
    f"train empty.csv {TRAIN}": "empty.csv is empty.",
    f"train header.csv {TRAIN}": "header.csv holds no rows.",
    f"train nothing.csv {TRAIN}": "There is no file nothing.csv.",
    f"train folder {TRAIN}": "A folder of images needs a schema: poisonproof schema folder",
    f"train twice.csv {TRAIN}": "more than one column named 'length'",
    f"train texts.csv {TRAIN}": "Give columns of text a type in a schema",
    f"train users.csv --groups usr {TRAIN}": "no column 'usr'",
    "train train.csv --schema proposed.json --out m": "poisonproof schema proposed.json --freeze",
    "train train.csv --schema changed.json --out m": "was changed after it was frozen",
    "train train.csv --schema misspelt.json --out m": "clases",
    "train train.csv --schema broken.json --out m": "broken.json is not a schema file",
    "train train.csv --schema nothing.json --out m": "Cannot read nothing.json: No such file",
    "train train.csv --schema frozen.json --classes a,b --out m": "already says that",
    f"train train.csv --model treee {TRAIN}": "--model is one of scaled-kernel, tree,",
    f"train train.csv --method ssdpa {TRAIN}": "dpa, neighbors, ss-dpa, clusters, walks, grid. Got",
    f"train train.csv --threat theft {TRAIN}": "insert_delete, label_flip, replace. Got 'theft'",
    f"train train.csv --method clusters --threat insert_delete {TRAIN}": "one of dpa, neighbors",
    f"train train.csv --method clusters -k 5 {TRAIN}": "-k: training rows vote in --method",
    f"train train.csv --cosine 0.5 {TRAIN}": "--cosine is for --method neighbors",
    f"train train.csv --partitioner group {TRAIN}": "needs --groups COLUMN",
    f"train users.csv --groups user --partitioner content {TRAIN}": "use --partitioner group",
    "train train.csv --label kind --classes ham,spam --out afile": "choose another path",
    "train train.csv --label kind --classes ham,spam -k 7 --out model": "(--overwrite)",
    "predict model few.csv --label kind": "few.csv has no column 'links'. Its columns are",
    "predict model more.csv --label kind": "--ignore more",
    "predict model train.csv": "--ignore kind",
    "predict nothing train.csv": "There is no model nothing. Make one with: poisonproof train",
    "predict afile train.csv": "that is a directory",
    "predict folder train.csv": "has no manifest.json",
    "predict model.pkl train.csv": "Pickle files are never loaded",
    "predict own train.csv": "--trusted tests.cli.test_mistakes.OwnTree",
    "certify --votes scores.npy --n-classes 2": "they must be integers: class indices",
    "certify --votes votes.npy": "--n-classes C, or their names",
    "certify model train.csv --label kind --threat lable_flip": "Got 'lable_flip'",
    "certify clusters train.csv --label kind --threat insert_delete": "certifies label_flip only",
    "certify clusters train.csv --label kind --election runoff": "needs members that score",
    "certify model train.csv --label kind --election run-off": "one of plurality, runoff",
    "predict model train.csv --label kind --election run-off": "one of plurality, runoff",
    "predict clusters train.csv --label kind --election runoff": "needs members that score",
    "predict model train.csv --label kind --election runoff --votes-out v.npz": "first choices",
    "certify users train.csv --label kind --threat insert_delete/row": "counts its certificates in",
    "certify model train.csv --held-out": "needs a model that was trained with --schema",
    "update model": "--add FILE, --remove FILE, or both",
    "update model --remove few.csv --label kind": "--data FILE",
    "update clusters --add train.csv --label kind": "Train it again on the rows as they are now",
    "report model train.csv --label kind --out page.pdf": "page.pdf must end in .html",
    "compare train.csv --out page": "Name test rows, or a schema that holds rows out",
    "compare train.csv train.csv --label kind --classes ham,spam -k 0 --out page": "at least 1.",
    "compare train.csv train.csv --label kind --classes ham,spam --out afile": "not a directory",
    "plan train.csv": "Missing option '--schema'",
    "plan train.csv --schema frozen.json --threat theft": "one of insert_delete, label_flip",
    "plan train.csv --schema frozen.json --expected-rows 3": "3 rows are fewer than",
    "plan train.csv --schema frozen.json --wanted-radius 100000": "the largest is",
    "plan train.csv --schema frozen.json --expected-contributors 9": "names no contributors",
    "attack train.csv --trained model": "Name the test rows, too: poisonproof attack TRAIN TEST",
}


@pytest.mark.parametrize(("command", "line"), COMMANDS.items(), ids=COMMANDS)
def test_a_mistake_on_the_command_line_is_one_line(
    command: str, line: str, place: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = sorted(path.name for path in place.iterdir())
    result = cli(*command.split())
    assert result.code == 2, result
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1, result.err
    assert line in result.err
    assert "Traceback" not in result.err
    assert "bug" not in result.err
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("train train.csv -k 500", "n_partitions=500 is too large for these training rows"),
        (
            "train users.csv --groups user -k 50",
            "Take fewer partitions than there are contributors",
        ),
    ],
)
def test_more_partitions_than_rows_or_contributors_are_pointed_out(
    command: str, note: str, place: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(place)
    labels = ("--label", "kind", "--classes", "ham,spam")
    result = cli(*command.split(), *labels, "--out", tmp_path / "m")
    assert result.code == 0, result.err
    assert result.err.startswith("Note: ")
    assert result.err.count("\n") == 1
    assert note in result.err


def test_columns_in_another_order_are_no_mistake(
    place: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(place)
    straight = write_csv(
        tmp_path / "straight.csv",
        HEADER,
        [line.split(",")[::-1] for line in Path("swapped.csv").read_text().split()[1:]],
    )
    said = [
        cli("predict", "model", path, "--label", "kind", "--out", tmp_path / f"{i}.csv")
        for i, path in enumerate(("swapped.csv", straight))
    ]
    assert [result.code for result in said] == [0, 0]
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


X, Y = digits()
TEXTS = ["free money", "see you"] * 20
FRAME = pd.DataFrame(X[:, :3], columns=["a", "a", "b"])
VOTES = certify_votes([[0, 1, 1]], 2)


def dpa(*given: Any, **options: Any) -> DPAClassifier:
    return DPAClassifier(*given, **{"n_partitions": 4, "classes": range(10), **options})


def fitted() -> DPAClassifier:
    return dpa().fit(X, Y)


def clusters() -> ClusterVoteClassifier:
    return ClusterVoteClassifier(classes=range(10), clusterer="kmeans").fit(X, Y)


def loaded(content: bytes) -> Callable[[], Any]:
    """Return a call that loads a file of this content."""

    def call() -> Any:
        path = Path("loaded")
        path.write_bytes(content)
        return load(path)

    return call


def saved(member: Any) -> Callable[[], Any]:
    """Return a call that saves a model of such members and loads it."""

    def call() -> Any:
        dpa(member).fit(X, Y).save("saved")
        return load("saved")

    return call


def pickled() -> bytes:
    file = io.BytesIO()
    pickle.dump({"a": 1}, file)
    return file.getvalue()


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "k = 0": (
        lambda: dpa(n_partitions=0).fit(X, Y),
        "an integer from 1 to 2147483647, but it is 0",
    ),
    "negative k": (lambda: dpa(n_partitions=-3).fit(X, Y), "but it is -3"),
    "k a fraction": (lambda: dpa(n_partitions=2.5).fit(X, Y), "but it is 2.5"),
    "k in the place of the member": (lambda: DPAClassifier(50).fit(X, Y), "mean n_partitions=50?"),
    "the member's class": (
        lambda: dpa(DecisionTreeClassifier).fit(X, Y),
        "Did you mean DecisionTreeClassifier()?",
    ),
    "the member's name": (lambda: dpa("tree").fit(X, Y), "must be a classifier"),
    "a regressor as the member": (
        lambda: dpa(LinearRegression()).fit(X, Y),
        "got LinearRegression",
    ),
    "a regression target": (
        lambda: DPAClassifier(n_partitions=4).fit(X, Y + 0.5),
        "classifier, which expects discrete classes on a regression target",
    ),
    "y of text, classes of integers": (
        lambda: dpa().fit(X, Y.astype(str)),
        "Did you mean 0? Labels and classes have one type.",
    ),
    "y of integers, classes of text": (
        lambda: dpa(classes=list("0123456789")).fit(X, Y),
        "Did you mean '0'?",
    ),
    "a label that is not a number": (
        lambda: dpa().fit(X, np.where(Y == 3, np.nan, Y)),
        "row 3 has the label nan",
    ),
    "a class missing": (lambda: dpa(classes=range(9)).fit(X, Y), "row 9 has the label 9"),
    "classes as a number": (lambda: dpa(classes=10).fit(X, Y), "lists the label set"),
    "classes as one text": (lambda: dpa(classes="ham,spam").fit(X, Y), "lists the label set"),
    "classes not declared": (
        lambda: DPAClassifier(n_partitions=4).fit(X, Y).certify(X, require_declared=True),
        "Declare it: classes=[...].",
    ),
    "X of one dimension": (lambda: dpa().fit(X[:, 0], Y), "X.reshape(-1, 1) if it has one feature"),
    "one sample to predict": (lambda: fitted().predict(X[0]), "X.reshape(1, -1) if it is one"),
    "fewer labels than rows": (lambda: dpa().fit(X, Y[:-1]), "have one entry per row"),
    "one-hot labels": (lambda: dpa().fit(X, np.eye(10)[Y]), "y should be a 1d array"),
    "infinite values": (
        lambda: dpa().fit(np.where(X == 3, np.inf, X), Y),
        "Remove them, or bound their values.",
    ),
    "other columns to predict": (lambda: fitted().predict(X[:, :5]), "X has 5 features"),
    "random_state=None": (lambda: dpa(random_state=None).fit(X, Y), "a non-negative integer"),
    "texts for the default member": (
        lambda: dpa(classes=[0, 1]).fit(TEXTS, [0, 1] * 20),
        "Map texts row by row, features=HashedNGrams()",
    ),
    "two columns of one name": (lambda: dpa().fit(FRAME, Y), "more than one column named 'a'"),
    "sparse rows where they are not taken": (
        lambda: dpa().fit(sparse.csr_matrix(X), Y),
        "Use X.toarray()",
    ),
    "groups without their partitioner": (
        lambda: dpa().fit(X, Y, groups=np.arange(200) % 7),
        "Set partitioner='group'",
    ),
    "a partitioner without its groups": (
        lambda: dpa(partitioner="group").fit(X, Y),
        "needs groups, one identity per row of X",
    ),
    "a partitioner misspelt": (
        lambda: dpa(partitioner="contents").fit(X, Y),
        "'content', 'pixel_sum', 'sorted', 'group'",
    ),
    "a scaler in front of the classifier": (
        lambda: make_pipeline(StandardScaler(), dpa()).fit(X, Y).predict(X),
        "Put the step inside the member",
    ),
    "features learned from all rows": (
        lambda: dpa(features=PCA(5)).fit(X, Y),
        "Put it inside the member's pipeline",
    ),
    "the same where rows vote": (
        lambda: NeighborVoteClassifier(PCA(5), classes=range(10)).fit(X, Y),
        "Use a map from poisonproof.features",
    ),
    "a cosine above 1": (
        lambda: NeighborVoteClassifier(threshold=2, classes=range(10)).fit(X, Y),
        "above 0, at most 1",
    ),
    "an assignment misspelt": (
        lambda: ClusterVoteClassifier(assignment="one-to-one", classes=range(10)).fit(X, Y),
        "local, one_to_one, onto",
    ),
    "more clusters than rows": (
        lambda: ClusterVoteClassifier(n_clusters=500, classes=range(10)).fit(X, Y),
        "n_clusters=500 is more than",
    ),
    "a threat that clusters do not certify": (
        lambda: clusters().certify(X, threat="insert_delete"),
        "certifies label_flip only",
    ),
    "the same of SS-DPA": (
        lambda: (
            SSDPAClassifier(features=PCA(5), n_partitions=4, classes=range(10))
            .fit(X, Y)
            .certify(X, threat="insert_delete")
        ),
        "Use DPAClassifier or another method.",
    ),
    "a threat misspelt": (lambda: fitted().certify(X, threat="insert"), "Got 'insert'"),
    "a target that is no class": (lambda: fitted().certify(X, target=99), "one of the classes"),
    "certify before fit": (lambda: dpa().certify(X), "is not fitted yet"),
    "a run-off among rows": (lambda: certify_runoff(clusters(), X), "needs members that score"),
    "an update with rows that are not there": (
        lambda: fitted().update(remove=(X[:1] + 0.5, Y[:1])),
        "is not in the training set",
    ),
    "an update with nothing": (lambda: fitted().update(), "rows to add, rows to remove, or both"),
    "an update without labels": (lambda: fitted().update(add=X[:1]), "must be a tuple (X, y)"),
    "an update of clusters": (lambda: clusters().update(add=(X, Y)), "Train it again"),
    "load of a pickle": (loaded(pickled()), "Pickle files are never loaded"),
    "load of nothing": (lambda: load("nothing"), "there is nothing there"),
    "load of a type that is not trusted": (saved(OwnTree()), "load(path, trusted=["),
    "save where a file stands": (lambda: fitted().save(__file__), "choose another path"),
    "probabilities as votes": (lambda: certify_votes([[0.5, 0.5]], 2), "certify_scores"),
    "scores as votes": (lambda: certify_votes(np.ones((4, 5, 2)), 2), "certify_scores"),
    "a vote beyond the classes": (lambda: certify_votes([[0, 5]], 2), "votes[0, 1] is 5"),
    "votes as scores": (lambda: certify_scores([[0.5, 0.5]]), "must have three dimensions"),
    "a label that no certificate knows": (
        lambda: certified_accuracy(VOTES, ["ham"], 1),
        "y_true[0] is 'ham'",
    ),
    "a negative attack": (lambda: certified_accuracy(VOTES, [1], -1), "Attack sizes start at 0"),
}


@pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")
@pytest.mark.parametrize(("call", "line"), CALLS.values(), ids=CALLS)
def test_a_mistake_in_python_is_said_in_a_sentence_or_two(
    call: Callable[[], Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, GuaranteeError)) as caught:
        call()
    said = str(caught.value)
    assert line in said
    assert len(said) < 420
    assert "\n" not in said.strip()


def test_more_partitions_than_rows_or_contributors_warn() -> None:
    with pytest.warns(MemberWarning, match="Take fewer partitions than there are training rows"):
        dpa(n_partitions=900).fit(X, Y)
    grouped = dpa(partitioner="group", n_partitions=40)
    with pytest.warns(MemberWarning, match="Take fewer partitions than there are contributors"):
        grouped.fit(X, Y, groups=np.arange(200) % 7)


def test_rare_and_look_alike_labels_are_pointed_at(cli: Cli, tmp_path: Path) -> None:
    said = " ".join(cli("schema", messy(tmp_path / "m.csv"), "--label", "verdict").out.split())
    assert "classes: Good, bad, 'bad ', good." in said
    assert "Rare, a mistake? Label Good (4 rows), 'bad ' (4 rows)." in said
    assert "The labels 'Good' and 'good' differ in spaces or capitals only" in said
    assert "The labels 'bad' and 'bad ' differ in spaces or capitals only" in said
