"""Learners with a closed form: whole ensembles in a few matrix products."""

from poisonproof.learners.closed_form.classifier import ClosedFormClassifier
from poisonproof.learners.closed_form.discriminant import LinearDiscriminantClassifier
from poisonproof.learners.closed_form.kernel_ridge import KernelRidgeClassifier
from poisonproof.learners.closed_form.naive_bayes import BernoulliNaiveBayes, GaussianNaiveBayes
from poisonproof.learners.closed_form.nearest_mean import NearestMeanClassifier
from poisonproof.learners.closed_form.neighbors import NeighborsClassifier
from poisonproof.learners.closed_form.ridge import RidgeClassifier
from poisonproof.learners.closed_form.scaled_kernel import ScaledKernelClassifier
from poisonproof.learners.closed_form.stacked import StackedMembers, restore_members

__all__ = [
    "BernoulliNaiveBayes",
    "ClosedFormClassifier",
    "GaussianNaiveBayes",
    "KernelRidgeClassifier",
    "LinearDiscriminantClassifier",
    "NearestMeanClassifier",
    "NeighborsClassifier",
    "RidgeClassifier",
    "ScaledKernelClassifier",
    "StackedMembers",
    "restore_members",
]
