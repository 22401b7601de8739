"""Why more partitions certify more, until members know too little."""

from sklearn.datasets import load_digits

from poisonproof import DPAClassifier
from poisonproof.evaluation import summarize

X, y = load_digits(return_X_y=True)
print("  k  rows each  correct  one member  median radius")
for k in (5, 10, 20, 50, 100, 200, 400):
    clf = DPAClassifier(n_partitions=k, classes=range(10))
    summary = summarize(clf.fit(X[:1400], y[:1400]).certify(X[1400:]), y[1400:])
    print(
        f"{k:3} {1400 / k:10.1f} {summary.clean_accuracy:8.1%} {summary.base_accuracy:11.1%} "
        f"{summary.median_radius!s:>14}"
    )
