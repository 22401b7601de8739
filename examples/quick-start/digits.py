"""A certified classifier in ten lines."""

from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier

X, y = load_digits(return_X_y=True)
clf = DPAClassifier(KNeighborsClassifier(1), n_partitions=100, classes=range(10))
certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])

print(certificates)
print(f"The first test digit is a {certificates.labels[0]}, and no {certificates.radius[0]} rows")
print("inserted into or deleted from the training set can change that.")
