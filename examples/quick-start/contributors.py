"""Malicious contributors instead of malicious rows: whatever each of them hands in."""

import numpy as np

from poisonproof import DPAClassifier
from poisonproof.evaluation import closing_sentences

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 3000)
X = rng.normal(size=(3000, 10)) + y[:, np.newaxis]
contributors = np.array([f"user{i}" for i in rng.integers(0, 400, 3000)])

clf = DPAClassifier(n_partitions=100, partitioner="group", classes=[0, 1])
clf.fit(X[:2500], y[:2500], groups=contributors[:2500])
certificates = clf.certify(X[2500:])
print(*closing_sentences(certificates, n_groups=len(set(contributors[:2500]))))
