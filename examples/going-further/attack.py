"""A real attack of exactly the certified size changes nothing; a larger one does."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier
from poisonproof.partition import ContentHash

K = 30
X, y = load_digits(return_X_y=True)
X_train, y_train, target = X[:1500], y[:1500], X[1600:1601]


def fitted(X, y):
    """Train the ensemble on these rows, from scratch."""
    member = KNeighborsClassifier(n_neighbors=1)
    return DPAClassifier(member, n_partitions=K, classes=range(10)).fit(X, y)


clean = fitted(X_train, y_train)
certificate = clean.certify(target)
label, lie = int(certificate.labels[0]), int(certificate.runner_up[0])
radius = int(certificate.radius[0])
print(f"Predicted {label}, certified against {radius} rows; the attacker wants {lie}.")

# One copy of the target per partition, slightly changed until it falls there, with the wrong label.
rng = np.random.default_rng(0)
poison = {}
while len(poison) < K:
    row = target + rng.normal(scale=1e-3, size=target.shape)
    poison.setdefault(int(ContentHash(n_partitions=K).assign(row)[0]), row)
members = np.flatnonzero(clean.votes(target)[0] == label)

for size in range(radius, len(members) + 1):
    rows = [poison[int(member)] for member in members[:size]]
    model = fitted(np.vstack([X_train, *rows]), np.append(y_train, [lie] * size))
    now = int(model.predict(target)[0])
    print(f"{size:2} poisoned rows: predicted {now}")
    if size == radius and now != label:
        raise SystemExit("a certificate was broken: please report this")
    if now != label:
        break
