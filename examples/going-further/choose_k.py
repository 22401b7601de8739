"""Accuracy against radius over k, measured on rows that are trusted."""

import numpy as np
from sklearn.datasets import load_digits

from poisonproof.evaluation import make_plan, measure_curves
from poisonproof.members.closed_form import RidgeClassifier, ScaledKernelClassifier

X, y = load_digits(return_X_y=True)
curves = measure_curves(
    X[:1200],
    y[:1200],
    {"kernel": ScaledKernelClassifier(), "ridge": RidgeClassifier()},
    np.arange(10),
)
plan = make_plan(curves, expected_rows=10_000)
print("members     k  rows each  correct  median radius")
for row in plan.rows:
    print(
        f"{row.model:7} {row.n_partitions:5} {row.rows_per_member:10} {row.accuracy:8.1%} "
        f"{row.median_radius:14}"
    )
print(f"Proposed: k = {plan.proposed.n_partitions}, {plan.proposed.model}: {plan.reason}.")
print("Chosen on untrusted rows this would be outside the proof.")
