"""Learners with a closed form: whole ensembles in a few matrix products."""

from __future__ import annotations

from poisonproof.members.closed_form.classifier import ClosedFormClassifier
from poisonproof.members.closed_form.kernel_ridge import KernelRidgeClassifier
from poisonproof.members.closed_form.linear import RidgeClassifier
from poisonproof.members.closed_form.scaled_kernel import ScaledKernelClassifier
from poisonproof.members.closed_form.stacked import StackedMembers, restore_members

__all__ = [
    "ClosedFormClassifier",
    "KernelRidgeClassifier",
    "RidgeClassifier",
    "ScaledKernelClassifier",
    "StackedMembers",
    "restore_members",
]
