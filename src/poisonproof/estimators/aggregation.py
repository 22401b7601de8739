"""What DPA and SS-DPA share: partition, train one member each, update, save."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from sklearn.base import clone, is_classifier
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from poisonproof.estimators.certifying import VotingMembers
from poisonproof.estimators.maps import refuse_steps_in_front
from poisonproof.estimators.saving import save
from poisonproof.estimators.self_check import check_ensemble
from poisonproof.estimators.training_rows import HeldRows, TrainingSet, check_training_rows
from poisonproof.estimators.updating import apply_change, plan_update
from poisonproof.estimators.validation import input_tags
from poisonproof.exceptions import InvalidInputError, MemberWarning
from poisonproof.members.closed_form.scaled_kernel import ScaledKernelClassifier
from poisonproof.members.member import BatchedLearner, Ensemble, Finished, Learner
from poisonproof.members.scikit import ScikitLearner, check_random_state
from poisonproof.members.training import train, train_portions
from poisonproof.partition.containers import kind_of
from poisonproof.partition.partitioned import PartitionedData, partition_data
from poisonproof.partition.partitioners import make_partitioner
from poisonproof.progress import make_progress


class PartitionAggregation(VotingMembers):
    """An ensemble with one member per partition that predicts by plurality vote.

    Guarantee
    ---------
    A member is a function of its own partition, the parameters and `random_state`. Row order,
    containers, `n_jobs` and the other partitions have no influence on its bits.
    """

    estimator: Any
    features: Any
    n_partitions: int
    partitioner: Any
    invalid_rows: str
    random_state: int

    rows_: TrainingSet | None
    context_: str | None

    @abstractmethod
    def _fit_features(self, data: PartitionedData) -> Any:
        """Return the fitted feature map for samples in canonical order, or None."""

    @abstractmethod
    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        """Return the partitions `which` as members see them: mapped to features, if any."""

    __metadata_request__fit: ClassVar = {"self_check": UNUSED}

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        self_check: bool = False,
    ) -> Self:
        """Partition the rows and train one member per partition.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (m, ...)
            Samples.
        y : array of shape (m,)
            Labels.
        groups : array of shape (m,), optional
            The contributor of every row, for ``partitioner="group"``.
        sample_weight : array of shape (m,), optional
            Weights, handed to the members. Every weight is the attacker's to choose.
        self_check : bool, default=False
            Train max(1, 2 % of k) members again in a fresh process and raise `GuaranteeError` if
            one differs: evidence, though no proof, that members depend on their partitions alone.

        Returns
        -------
        self
        """
        refuse_steps_in_front(self)
        data = self._prepare(X, y, groups, sample_weight)
        ensemble = self._train(data, range(len(data)))
        self.n_self_checked_ = 0
        if self_check:
            self.n_self_checked_ = check_ensemble(self, HeldRows(data), ensemble)
        self.ensemble_ = ensemble
        self._report_failures()
        return self

    def fit_into(
        self,
        path: str | os.PathLike[str],
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        keep_data: bool = False,
        overwrite: bool = False,
        cluster: Any = None,
        self_check: bool = True,
    ) -> Self:
        """Fit, and write every member to a model directory as soon as it is finished.

        Killed at any moment, the same call trains only what is missing and ends with the same
        members. If `path` holds a model already, members whose partitions did not change are
        taken from it.

        Parameters
        ----------
        path : path
            The directory.
        X, y, groups, sample_weight
            As in `fit`.
        keep_data : bool, default=False
            Keep the training rows in the store, partition by partition, for `update`.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        cluster : DaskCluster or RayCluster, optional
            Machines that train the members, from `poisonproof.distributed`. Has no influence on any
            member.
        self_check : bool, default=True
            As in `fit`, on this machine, before there is a model. Without it the model says so.

        Returns
        -------
        self
            Members are read from the store when they are asked.
        """
        from poisonproof.estimators.storing import train_into

        refuse_steps_in_front(self)
        data = self._prepare(X, y, groups, sample_weight)
        kept = {"keep_data": keep_data, "overwrite": overwrite}
        train_into(self, path, data, **kept, cluster=cluster, self_check=self_check)
        self._report_failures()
        return self

    def update(self, add: Any = None, remove: Any = None, *, data: Any = None) -> Self:
        """Add and remove training rows; only partitions whose rows change train again.

        The result equals `fit` on the new training set, member by member and bit by bit. The
        attribute ``receipt_`` says what was done. A stored model changes when it is saved.

        Parameters
        ----------
        add, remove : tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), optional
            Rows to add and rows to take out, one copy each. A mapping with these keys works too.
        data : the same, optional
            All training rows as they are now, for a model that was loaded without them.

        Raises
        ------
        InvalidRowsError
            If a row to remove is not in the training set; the model stays as it was.
        """
        check_is_fitted(self, "ensemble_")
        self.receipt_ = apply_change(self, plan_update(self, add, remove, data))
        return self

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        keep_data: bool | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the fitted model: a manifest and members, no pickle.

        Parameters
        ----------
        path : path
            A directory, or an archive if it ends in ``.zip``. An earlier state of the model there
            is replaced; members that are there already are not written again.
        keep_data : bool, optional
            Keep the training rows, for `update`. By default they are kept if the model was loaded
            from a store that keeps them.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        """
        check_is_fitted(self, "ensemble_")
        save(self, path, keep_data=keep_data, overwrite=overwrite)

    def get_metadata_routing(self) -> MetadataRouter:
        """Say that `sample_weight` goes on to the members."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self._template(),
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = input_tags(self._template() if self.features is None else self.features)
        tags.input_tags.pairwise = False
        return tags

    def _template(self) -> Any:
        template = ScaledKernelClassifier() if self.estimator is None else self.estimator
        if not is_classifier(template):
            raise InvalidInputError(
                f"estimator must be a classifier, got {type(template).__name__}: {template!r}."
            )
        return template

    def _learner(self) -> Learner | BatchedLearner:
        template = self._template()
        if isinstance(template, BatchedLearner):
            learner: BatchedLearner = clone(template)
            return learner
        return ScikitLearner(template, self.classes_)

    def _prepare(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> PartitionedData:
        """Check the rows, cut them into partitions and fit the feature map."""
        check_random_state(self.random_state)
        rows = check_training_rows(self, X, y, groups, sample_weight)
        self.classes_ = rows.classes
        self.n_dropped_ = rows.n_dropped
        self.container_ = kind_of(rows.X)
        self.partitioner_ = make_partitioner(self.partitioner, self.n_partitions)
        data = partition_data(
            rows.X, rows.y, self.partitioner_, groups=rows.groups, sample_weight=rows.sample_weight
        )
        self.features_ = self._fit_features(data)
        self._remember(HeldRows(data), data.partition_digests())
        return data

    def _remember(self, rows: TrainingSet, partition_digests: Sequence[str]) -> None:
        self.rows_ = rows
        self.partition_sizes_ = rows.sizes
        self.partition_digests_ = list(partition_digests)
        self.context_ = self._context(rows)
        if "n_rows" in (known := getattr(self, "provenance_", None) or {}):
            self.provenance_ = {**known, "n_rows": int(rows.sizes.sum())}

    def _train(self, data: PartitionedData, which: Sequence[int]) -> Ensemble:
        return train(*self._task(data, which), **self._schedule())

    def _train_portions(
        self, data: PartitionedData, which: Sequence[int], finished: Finished
    ) -> None:
        train_portions(*self._task(data, which), finished=finished, **self._schedule())

    def _task(self, data: PartitionedData, which: Sequence[int]) -> tuple[Any, ...]:
        """Return what members are functions of: learner, rows, partitions, label set, seed."""
        return (
            self._learner(),
            self._member_data(data, which),
            list(which),
            len(self.classes_),
            check_random_state(self.random_state),
        )

    def _schedule(self) -> dict[str, Any]:
        """Return what changes no member."""
        return {"n_jobs": self.n_jobs, "progress": make_progress(self.verbose)}

    def _report_failures(self) -> None:
        """Warn of members that abstain; raise if all do."""
        self.failures_ = self.ensemble_.failures()
        sizes = self.partition_sizes_
        empty = int((sizes == 0).sum())
        if len(self.failures_) and len(self.failures_) + empty == len(sizes):
            raise InvalidInputError(
                f"no member could be trained; {next(iter(self.failures_.values()))}"
            )
        if self.failures_:
            index, reason = next(iter(self.failures_.items()))
            warnings.warn(
                f"{len(self.failures_)} of {len(sizes)} members abstain because their learner "
                f"raised; member {index}: {reason}",
                MemberWarning,
                stacklevel=3,
            )
        if len(sizes) > sizes.sum():
            warnings.warn(
                f"n_partitions={len(sizes)} is larger than the {sizes.sum()} training rows: "
                f"{empty} members have no rows and abstain.",
                MemberWarning,
                stacklevel=3,
            )

    def _features_see_all_rows(self) -> bool:
        """Say whether what a member sees of its own rows may depend on other rows."""
        return False

    def _context(self, rows: TrainingSet) -> str | None:
        """Return a digest of what members see besides their partitions, None if nothing."""
        return None

    def _features_depend_on(self, before: PartitionedData, after: PartitionedData) -> bool:
        """Say whether the feature map may differ between two training sets."""
        return False
