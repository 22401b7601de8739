"""Accuracy against radius of methods and k, measured on rows that are trusted."""

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
print("correct  median radius  members or rows that vote")
for row in plan.frontier:  # what nothing beats in both
    print(f"{row.accuracy:7.1%} {row.median_radius:14}  {row}")
print(f"Proposed: {plan.proposed}: {plan.reason}.")
print("Chosen on untrusted rows this would be outside the proof.")
