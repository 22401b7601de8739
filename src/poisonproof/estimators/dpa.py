"""DPA and SS-DPA: partition the rows, train one member each, predict by plurality, update, save."""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.threats import (
    DECLARED_CATEGORIES,
    TRUSTED_SAMPLES,
    UNTOUCHED_MAP,
    Threat,
    resolve_threat,
    unit_noun,
)
from poisonproof.data.schema import Schema
from poisonproof.estimators.certifying import VotingMembers, check_random_state
from poisonproof.estimators.checked_table import check_table
from poisonproof.estimators.maps import fresh_map, map_partitions, refuse_steps_in_front
from poisonproof.estimators.saving import draft, save
from poisonproof.estimators.training_set import TrainingSet
from poisonproof.estimators.updating import apply_change, plan_update
from poisonproof.exceptions import GuaranteeError, InvalidInputError, MemberWarning
from poisonproof.features.base import is_own_map, learns_nothing
from poisonproof.members.member import (
    BatchedLearner,
    Ensemble,
    Finished,
    Learner,
    guarded,
    is_machine_error,
)
from poisonproof.members.scikit import ScikitLearner
from poisonproof.members.streams import in_own_streams, seed_nested
from poisonproof.members.training import train, train_portions
from poisonproof.partition.containers import kind_of
from poisonproof.partition.contributors import GroupPartitioner, make_partitioner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.partitioners import Partitioner
from poisonproof.partition.values import declared_categories, take_canonical
from poisonproof.progress import make_progress, reporting
from poisonproof.store.items import StoredEnsemble
from poisonproof.store.manifest import ModelReader
from poisonproof.threads import one_thread


class PartitionAggregation(VotingMembers):
    """An ensemble with one member per partition that predicts by plurality vote.

    Guarantee
    ---------
    A member is a function of its own partition, the parameters and `random_state`. Row order,
    containers, `n_jobs` and the other partitions have no influence on its bits.
    """

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
        y: Any = None,
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
        y : array of shape (m,), optional
            Labels. With a schema, these and the following are by default in its columns.
        groups : array of shape (m,), optional
            The contributor (or source, or time) of every row, for a partitioner that reads them.
        sample_weight : array of shape (m,), optional
            Weights, handed to the members. Every weight is the attacker's to choose.
        self_check : bool, default=False
            Train max(1, 2 % of k) members again in a fresh process and raise `GuaranteeError` if
            one differs: evidence, though no proof, that members depend on their partitions alone.

        Returns
        -------
        self
        """
        data = self._prepare(X, y, groups, sample_weight)
        ensemble = self._train(data, range(len(data)))
        self.n_self_checked_ = 0
        if self_check:
            from poisonproof.estimators.self_check import check_ensemble

            self.n_self_checked_ = check_ensemble(self, data, ensemble)
        self.ensemble_ = ensemble
        self._report_failures()
        return self

    def fit_into(
        self,
        path: str | os.PathLike[str],
        X: Any,
        y: Any = None,
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
            Members are read from the store when they first vote.
        """
        from poisonproof.estimators.storing import store_members

        data = self._prepare(X, y, groups, sample_weight)
        store_members(
            self,
            path,
            data,
            partial(self._train_portions, data),
            keep_data=keep_data,
            overwrite=overwrite,
            cluster=cluster,
            self_check=self_check,
        )
        self._report_failures()
        return self

    def update(self, add: Any = None, remove: Any = None, *, data: Any = None) -> Self:
        """Add and remove training rows; only partitions whose rows change train again.

        The result equals `fit` on the new training set, member by member and bit by bit. The
        attribute ``receipt_`` says what was done. A stored model changes when it is saved.

        Parameters
        ----------
        add, remove : tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), optional
            Rows to add and rows to take out, one copy each. A mapping with these keys works too,
            and, with a schema that names the label, a frame or a list of dicts.
        data : the same, optional
            All training rows as they are now, for a model that was loaded without them.

        Raises
        ------
        InvalidRowsError
            If a row to remove is not in the training set; the model stays as it was.
        """
        check_is_fitted(self)
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
            A directory. An earlier state of the model there is replaced; members that are there
            already are not written again.
        keep_data : bool, optional
            Keep the training rows, for `update`. By default they are kept if the model was loaded
            from a store that keeps them.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        """
        check_is_fitted(self)
        save(self, path, keep_data=keep_data, overwrite=overwrite)

    def _fingerprint(self) -> str:
        ensemble = self.ensemble_
        if isinstance(ensemble, StoredEnsemble) and not ensemble.is_changed:
            return ensemble.reader.manifest.fingerprint
        return draft(self).fingerprint

    def get_metadata_routing(self) -> MetadataRouter:
        """Return that `sample_weight` is passed on to the members."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self._template(),
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
        )

    def _learner(self) -> Learner | BatchedLearner:
        template = self._template()
        if isinstance(template, BatchedLearner):
            learner: BatchedLearner = clone(template)
            return learner
        return ScikitLearner(template, self.classes_)

    def _check_parameters(self) -> None:
        refuse_steps_in_front(self)
        template = self._template()
        a_class = isinstance(template, type)
        classifies = not a_class and hasattr(template, "fit") and is_classifier(template)
        if not (classifies or isinstance(template, BatchedLearner)):
            hint = f" Did you mean n_partitions={template}?" if isinstance(template, int) else ""
            hint = f" Did you mean {template.__name__}()?" if a_class else hint
            raise InvalidInputError(
                "estimator must be a classifier, such as DecisionTreeClassifier(), got "
                f"{type(template).__name__}: {template!r}.{hint}"
            )
        check_random_state(self.random_state)

    def without_schema(self) -> Self:
        """Return a copy that takes features as the schema makes them, with what it declares."""
        bare = super().without_schema()
        bare.partitioner = self._declared_partitioner()
        return bare

    def _declared_partitioner(self) -> Partitioner:
        """Return the partitioner: for "group" the one that the schema declares, if it does."""
        declared = self.schema.partition if isinstance(self.schema, Schema) else None
        by_schema = declared is not None and self.partitioner == "group"
        rule: Any = declared if by_schema else self.partitioner
        return make_partitioner(rule, self.n_partitions)

    def _placed(self, partitioner: Partitioner, X: Any) -> Partitioner:
        """Return the partitioner for these samples."""
        return partitioner

    def _prepare(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> PartitionedData:
        """Check the rows, cut them into partitions and fit the feature map."""
        self._check_parameters()
        partitioner = self._declared_partitioner()
        rows = check_table(self, X, y, partitioner, groups, sample_weight)
        if self.blanks_cells:
            partitioner = self._placed(partitioner, rows.X)
        self.classes_ = rows.classes
        self.n_dropped_ = rows.n_dropped
        self.partitioner_ = partitioner
        valued = self.features is not None or isinstance(self._template(), BatchedLearner)
        self.categories_ = {} if valued else declared_categories(rows.X)
        data = rows.partitioned(partitioner)
        self.container_ = kind_of(data.X)  # in a grid that of blocks
        self.n_groups_ = None
        rule = getattr(partitioner, "base", partitioner)
        if self.schema_ is not None and isinstance(rule, GroupPartitioner):
            self.n_groups_ = len(set(rule.units(rows.groups)))
        self.features_ = self._fit_features(data)
        self._remember(TrainingSet(data), data.partition_digests())
        return data

    def _remember(self, rows: TrainingSet, partition_digests: Sequence[str]) -> None:
        self.rows_ = rows
        self.context_ = self._context(rows)
        self.partition_digests_ = list(partition_digests)
        self.partition_sizes_ = rows.sizes
        # In a grid the rows of the block that has most.
        by_block = self.partition_sizes_.reshape(self.partitioner_.n_blocks, -1)
        self.n_rows_ = int(by_block.sum(axis=1).max())

    def _restore(
        self, reader: ModelReader, templates: Mapping[str, Any], trusted: Iterable[str]
    ) -> None:
        manifest, model = reader.manifest, reader.manifest.model
        self.partitioner_, self.features_ = self.partitioner, templates["features_"]
        self.context_ = model["context"]
        self.n_self_checked_ = int(manifest.notes.get("n_self_checked", 0))
        self.partition_sizes_ = np.asarray(manifest.partition_sizes, dtype=np.intp)
        # In a grid the rows of the block that has most.
        by_block = self.partition_sizes_.reshape(self.partitioner_.n_blocks, -1)
        self.n_rows_ = int(by_block.sum(axis=1).max())
        self.partition_digests_ = list(manifest.partition_digests)
        self.rows_ = TrainingSet(reader) if manifest.keeps_data else None
        seed = check_random_state(self.random_state)
        self.ensemble_ = StoredEnsemble(reader, self.classes_, seed, trusted)
        self.failures_ = self.ensemble_.failures()

    def _threat(self, threat: str | Threat, assumptions: tuple[str, ...]) -> Threat:
        return resolve_threat(threat, self.partitioner_, (*self._assumptions(), *assumptions))

    def _assumptions(self) -> tuple[str, ...]:
        """Return what the method itself takes for granted."""
        return (DECLARED_CATEGORIES,) if self.categories_ else ()

    def _train(self, data: PartitionedData, which: Sequence[int]) -> Ensemble:
        progress = make_progress(self.verbose)
        return train(*self._task(data, which), n_jobs=self.n_jobs, progress=progress)

    def _train_portions(
        self, data: PartitionedData, which: Sequence[int], finished: Finished
    ) -> None:
        task, jobs = self._task(data, which), self.n_jobs
        with reporting(make_progress(self.verbose), len(which), "Training") as progress:
            train_portions(*task, n_jobs=jobs, progress=progress, finished=finished)

    def _task(self, data: PartitionedData, which: Sequence[int]) -> tuple[Any, ...]:
        """Return what members are functions of: learner, rows, partitions, label set, seed."""
        return (
            self._learner(),
            self._member_data(data, which),
            list(which),
            len(self.classes_),
            int(self.random_state),
        )

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
        for sentence in self._thin_partitions(sizes):
            warnings.warn(sentence, MemberWarning, stacklevel=3)

    def _thin_partitions(self, sizes: NDArray[np.intp]) -> list[str]:
        """Say whether there are more partitions than rows or contributors can fill."""
        rule, empty = self.partitioner_, int((sizes == 0).sum())
        if len(sizes) <= sizes.sum() and not (rule.by_group and 2 * empty > len(sizes)):
            return []
        unit = unit_noun(rule.unit) if rule.by_group else "training rows"
        return [
            f"n_partitions={len(sizes)} is too large for these {unit}: {empty} members have no "
            f"rows and abstain. Take fewer partitions than there are {unit}."
        ]

    def _context(self, rows: TrainingSet) -> str | None:
        """Return a digest of all samples if features are learned from them, None otherwise."""
        return None


class DPAClassifier(PartitionAggregation):
    """A classifier that withstands an attacker who inserts and deletes training rows.

    Every row is hashed into one of k partitions and one member is trained per partition, so one
    poisoned row reaches one member; the plurality of the votes changes only if enough members do
    (theorem 1 of Levine and Feizi, 2021).

    Parameters
    ----------
    estimator : classifier, optional
        What a member is: any scikit-learn classifier or pipeline. By default
        `ScaledKernelClassifier`, which takes tables as they come and trains all members in one
        computation.
    n_partitions : int, optional
        Number of members, k. More members, larger certificates, less data for each. By default
        that of the partitioner, or 50.
    partitioner : {"content", "pixel_sum", "group"} or partitioner, default="content"
        Which partition a row falls into. "group" hashes the contributor instead of the row;
        `GroupHash` with `entities`, `NamedSources` and `TimeBlocks` count other attackers.
    classes : array of shape (C,), optional
        The label set. If it is not declared it is taken from `y`, and the certificates carry the
        assumption that the attacker uses only these labels and removes none entirely.
    features : transformer, optional
        A fixed map of a sample that learns nothing from data, applied after partitioning. It sees
        canonical values (numbers are float64), in training those of one partition at a time, in
        prediction one sample at a time.
    schema : Schema, optional
        A frozen `poisonproof.data.Schema`. Frames, lists of dicts and rows of cells are then read
        by it, to train and to predict, and become what the same rows of a file become. Labels,
        contributors and weights may come from the columns that it names, and rows that it holds
        out are not trained on. Without one, members that take numbers alone read the columns of a
        frame by their types, which certificates then assume.
    invalid_rows : {"raise", "drop"}, optional
        What to do with a training row that has an unknown label or values no member can take. By
        default what the schema says, else "raise".
    n_jobs : int, optional
        Worker processes. Has no influence on any member.
    random_state : int, default=0
        Random streams are keyed by it and the partition's index.
    verbose : int, default=0
        Whether to draw a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    partition_sizes_ : ndarray of shape (k,)
        Rows per partition.
    failures_ : dict of int to str
        Reasons of members that abstain because their learner raised.
    n_dropped_ : int
        Training rows left out.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = DPAClassifier(n_partitions=20, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> bool(certificates.radius.max() >= 9)
    True
    """

    threats: ClassVar = ("insert_delete", "label_flip", "replace")

    def __init__(
        self,
        estimator: Any = None,
        n_partitions: int | None = None,
        *,
        partitioner: Any = "content",
        classes: Any = None,
        features: Any = None,
        schema: Any = None,
        invalid_rows: str | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_partitions = n_partitions
        self.partitioner = partitioner
        self.classes = classes
        self.features = features
        self.schema = schema
        self.invalid_rows = invalid_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit_features(self, data: PartitionedData) -> Any:
        if self.features is None:
            return None
        if not learns_nothing(self.features, stateless=True):
            raise GuaranteeError(
                f"{type(self.features).__name__} learns from all training rows, so one inserted "
                "row could reach every member. Put it inside the member's pipeline, use a fixed "
                "map from poisonproof.features, or SSDPAClassifier if only labels are untrusted."
            )
        reasons = []
        for first in data.order[data.offsets[:-1][data.sizes > 0]]:
            try:
                return fresh_map(self.features).fit(take_canonical(data.X, np.array([first])))
            except Exception as error:  # an invalid row is the matter of its own partition
                if is_machine_error(error):
                    raise
                reasons.append(error)
        raise reasons[0]

    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        data = data.only(which)
        if self.features_ is None:
            return replace(data, categories=self.categories_)
        if is_own_map(self.features_):
            return replace(data, X=self.features_.transform(data.X))
        return map_partitions(self.features_, data, self.random_state)

    def _assumptions(self) -> tuple[str, ...]:
        # A member may begin with a map that was learned from samples.
        parts = () if self.estimator is None else self.estimator.get_params(deep=True).values()
        kinds = {type(part).__module__ for part in (self.estimator, *parts)}
        learned = any(kind.startswith("poisonproof.networks.pretraining.") for kind in kinds)
        return (*((UNTOUCHED_MAP,) if learned else ()), *super()._assumptions())


class SSDPAClassifier(PartitionAggregation):
    """A classifier that withstands an attacker who flips training labels.

    The attacker cannot touch samples, so features may be learned from all of them, without labels,
    and partitions may be cut from their sorted order (theorem 2 of Levine and Feizi, 2021).

    Parameters
    ----------
    estimator : classifier, optional
        What a member is; it is trained on the features of its partition. By default
        `ScaledKernelClassifier`.
    features : transformer, optional
        Fitted on all samples, in an order their values decide, and never on a label.
    n_partitions : int, optional
        Number of members, k. By default that of the partitioner, or 50.
    partitioner : {"sorted", "content", "pixel_sum", "group"} or partitioner, default="sorted"
        Which partition a row falls into. Repeated samples share a partition.
    classes, schema, invalid_rows, n_jobs, random_state, verbose
        As in `DPAClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from poisonproof import SSDPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = SSDPAClassifier(KNeighborsClassifier(1), PCA(16), n_partitions=40, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> certificates.threat.name
    'label_flip'
    """

    threats: ClassVar = ("label_flip",)

    def __init__(
        self,
        estimator: Any = None,
        features: Any = None,
        n_partitions: int | None = None,
        *,
        partitioner: Any = "sorted",
        classes: Any = None,
        schema: Any = None,
        invalid_rows: str | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.features = features
        self.n_partitions = n_partitions
        self.partitioner = partitioner
        self.classes = classes
        self.schema = schema
        self.invalid_rows = invalid_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit_features(self, data: PartitionedData) -> Any:
        if self.features is None:
            return None

        def learn() -> Any:
            features = fresh_map(self.features)
            seed_nested(features, self.random_state, len(data))
            return features.fit(guarded(take_canonical(data.X, _by_sample(data))))

        return in_own_streams(self.random_state, len(data), learn)

    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        if self.features_ is None:
            return replace(data, categories=self.categories_)
        # All samples, even if few partitions train again: the map of some rows alone may round
        # differently, and an update must equal a fit.
        order = _by_sample(data)
        with one_thread():
            mapped = self._mapped(take_canonical(data.X, order))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return replace(data, X=_safe_indexing(mapped, back))

    def _mapped_samples(self, rows: Any) -> Any:
        # Training rows were mapped together, and a learned map may take long for a single row.
        return self._mapped_together(rows)

    def _assumptions(self) -> tuple[str, ...]:
        return (TRUSTED_SAMPLES, *super()._assumptions())

    def _context(self, rows: TrainingSet) -> str | None:
        if self.features is None:
            return None
        data = rows.whole()
        return hashlib.sha256(data.digests[_by_sample(data)].tobytes()).hexdigest()


def _by_sample(data: PartitionedData) -> Any:
    """Return the row numbers sorted by sample, whatever the labels and the caller's order."""
    return np.lexsort(data.digests.view(">u8").T[::-1])
