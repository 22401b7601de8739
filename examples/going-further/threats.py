"""The same votes against insertions, label flips and replacements: a radius has a unit."""

from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier
from poisonproof.evaluation import median_radius

X, y = load_digits(return_X_y=True)
clf = DPAClassifier(KNeighborsClassifier(1), n_partitions=60, classes=range(10))
clf.fit(X[:1500], y[:1500])
for threat in ("insert_delete", "label_flip", "replace"):
    certificates = clf.certify(X[1500:], threat=threat)
    size = median_radius(certificates, y[1500:])
    print(f"Half of the digits stay correct if any {certificates.threat.clause(size)}.")
