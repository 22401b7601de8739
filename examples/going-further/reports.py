"""Three reports: a model with real attacks, three models compared, a filter with contributors.

Run with ``python examples/going-further/reports.py --out FOLDER``; takes about half a minute.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier
from poisonproof.attacks import AttackStudy, attack_study
from poisonproof.features import HashedNGrams
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.report import Evidence, Report, make_samples


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training and test images of handwritten digits."""
    X, y = load_digits(return_X_y=True)
    return X[:1300], y[:1300], X[1300:], y[1300:]


def one_model(study: AttackStudy | None = None) -> Report:
    """Fifty nearest-neighbour members, attacked now or before."""
    X, y, X_test, y_test = digits()
    model = DPAClassifier(KNeighborsClassifier(1), n_partitions=50, classes=range(10)).fit(X, y)
    evidence = Evidence.of(model, X_test, y_test, name="neighbours", image_shape=(1, 8, 8))
    return Report(
        [evidence],
        title="Handwritten digits",
        data_name="scikit-learn's digits",
        study=study or attack_study(model, X, y, X_test),
    )


def three_models() -> Report:
    """Two kinds of member, and two sizes of one of them."""
    X, y, X_test, y_test = digits()
    members = {
        "neighbours, 100 members": (KNeighborsClassifier(1), 100),
        "neighbours, 25 members": (KNeighborsClassifier(1), 25),
        "ridge, 50 members": (RidgeClassifier(), 50),
    }
    models = [
        Evidence.of(
            DPAClassifier(member, n_partitions=k, classes=range(10)).fit(X, y),
            *(X_test, y_test),
            name=name,
            image_shape=(1, 8, 8),
        )
        for name, (member, k) in members.items()
    ]
    return Report(models, title="Three models for digits", data_name="scikit-learn's digits")


def spam_filter() -> Report:
    """Invented messages of 400 contributors; the certificates count contributors."""
    rng = np.random.default_rng(0)
    ham = ["meeting", "minutes", "lunch", "invoice", "review", "draft", "thanks", "monday", "train"]
    spam = ["free", "prize", "winner", "pills", "cheap", "click", "offer", "money", "invoice"]
    labels = rng.choice(["ham", "spam"], 2600)
    texts = [
        " ".join(rng.choice(spam if label == "spam" else ham, 4)) + f" {rng.integers(100)}"
        for label in labels
    ]
    texts[2000] = (
        '<script>document.title = "owned"</script> free money <img src=x onerror=alert(1)>'
    )
    users = np.array([f"user{number}" for number in rng.integers(0, 400, 2000)])
    X = HashedNGrams().transform(texts)  # learns nothing, so it may stand before the partitions
    model = DPAClassifier(
        RidgeClassifier(), n_partitions=60, partitioner="group", classes=["ham", "spam"]
    )
    model.fit(X[:2000], labels[:2000], groups=users)
    evidence = replace(
        Evidence.of(
            model,
            X[2000:],
            labels[2000:],
            name="ridge on n-grams",
            samples=make_samples(texts[2000:]),
        ),
        n_groups=len(set(users)),
    )
    return Report([evidence], title="Spam filter", data_name="600 invented messages")


def reports(study: AttackStudy | None = None) -> dict[str, Report]:
    """Return the reports by name."""
    return {"digits": one_model(study), "models": three_models(), "spam": spam_filter()}


def main() -> None:
    """Write the reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, report in reports().items():
        report.save(out / f"{name}.html")
        print(out / f"{name}.html")


if __name__ == "__main__":
    main()
