"""The curve of the paper's figures: certified accuracy over attack size, on digits."""

import sys

from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.evaluation import certified_accuracy, median_radius

X, y = load_digits(return_X_y=True)
train, test = slice(0, 1400), slice(1400, None)
member = KNeighborsClassifier(1)
for name, clf in {
    "DPA, rows inserted or deleted": DPAClassifier(member, 50, classes=range(10)),
    "SS-DPA, labels flipped": SSDPAClassifier(member, n_partitions=50, classes=range(10)),
}.items():
    certificates = clf.fit(X[train], y[train]).certify(X[test])
    print(f"{name}: median radius {median_radius(certificates, y[test])}")
    sizes = list(range(0, 25, 3))
    for size, share in zip(sizes, certified_accuracy(certificates, y[test], sizes), strict=True):
        print(f"  {size:3} {'#' * round(50 * share)} {share:.1%}")
if "--plot" in sys.argv:
    from poisonproof.evaluation import CertifiedAccuracyDisplay

    display = CertifiedAccuracyDisplay.from_certificates(certificates, y[test], name="SS-DPA")
    display.figure_.savefig("certified_accuracy.svg")
