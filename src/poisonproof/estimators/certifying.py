"""The base of every classifier: predict by a vote and certify the prediction, also by run-off."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from poisonproof.certificates.plurality import certify_votes
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.runoff import certify_scores
from poisonproof.certificates.threats import (
    OBSERVED_LABELS,
    OBSERVED_TYPES,
    Threat,
    parse_threat,
    uncertified,
)
from poisonproof.data.frames import (
    NAME,
    cell_texts,
    frame_rows,
    is_frame,
    named_columns,
    typed_schema,
)
from poisonproof.data.rows import CheckedRows, check_rows
from poisonproof.data.schema import Schema
from poisonproof.data.sources import refuse_labels, split_rows
from poisonproof.estimators.checked_table import SampleRules
from poisonproof.estimators.maps import map_alone, refuse_mixing
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, is_own_map
from poisonproof.members.closed_form.scaled_kernel import ScaledKernelClassifier
from poisonproof.members.closed_form.stacked import StackedMembers
from poisonproof.members.member import BatchedLearner, Ensemble, MemberList, guarded, mapped_by
from poisonproof.members.scikit import member_probabilities
from poisonproof.members.streams import in_own_streams
from poisonproof.partition.containers import as_objects, from_tensor
from poisonproof.partition.partitioners import Partitioner
from poisonproof.partition.values import Categories, take_canonical, with_categories
from poisonproof.progress import Silent, make_progress
from poisonproof.store.manifest import ModelReader


def input_tags(estimator: Any) -> Any:
    """Return the input tags of whatever sees the samples first.

    A search takes what its estimator takes. A pipeline says nothing about text and missing values,
    so its first step decides; missing values must be taken by every step up to the one that fills
    or encodes them. Of steps that stand side by side one that takes missing values is enough.
    """
    if isinstance(estimator, BaseSearchCV):
        return input_tags(estimator.estimator)
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if not _passes(step)]
        tags = input_tags(steps[0])
        tags.allow_nan = _takes_missing(steps)
        return tags
    tags = get_tags(estimator).input_tags
    if isinstance(estimator, ColumnTransformer):
        parts = [step for _, step, _ in estimator.transformers if not _passes(step)]
    elif isinstance(estimator, FeatureUnion):
        parts = [step for _, step in estimator.transformer_list if not _passes(step)]
    else:
        return tags
    tags.allow_nan = any(input_tags(part).allow_nan for part in parts)
    return tags


def _takes_missing(steps: list[Any]) -> bool:
    for step in steps:
        if not input_tags(step).allow_nan:
            return False
        if isinstance(step, (ColumnTransformer, FeatureUnion)):
            return True
        if any(word in type(step).__name__ for word in ("Imputer", "Encoder")):
            return True
    return True


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step in {"passthrough", "drop"})


def check_random_state(random_state: Any) -> int:
    """Return a non-negative integer; anything else is a stream that would be shared, or drawn."""
    if not isinstance(random_state, bool) and isinstance(random_state, Integral):
        seed = int(random_state)
        if seed >= 0:
            return seed
    raise InvalidInputError(
        "random_state must be a non-negative integer, so that everything drawn is a function of it "
        f"and of the rows; got {random_state!r}."
    )


class CertifyingClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that predicts by a vote, and proves how large an attack the outcome survives.

    Whether members vote or training rows do, it is used alike: `fit`, `predict`, `certify`,
    `save`, `poisonproof.load`, and `update` where that is less work than `fit`.
    """

    threats: ClassVar[tuple[str, ...]]
    """The threats this method can certify, the first one by default."""

    template_names: ClassVar[tuple[str, ...]] = ("features", "features_")
    """The objects that a stored model holds besides its arrays or members."""

    blanks_cells: ClassVar[bool] = False
    """Whether a cell that does not fit is missing, where it costs others its row."""

    classes: Any
    features: Any
    invalid_rows: str | None
    schema: Any = None

    classes_: NDArray[Any]
    features_: Any
    n_dropped_: int
    n_groups_: int | None = None
    container_: str | None = None
    schema_: Schema | None = None
    """How rows are read: the declared schema, or, not frozen, what the types of a frame say."""

    @classmethod
    def plain_parameters(cls) -> list[str]:
        """Return the constructor parameters that are numbers or words and decide something."""
        others = {*cls.template_names, "classes", "schema", "partitioner", "n_jobs", "verbose"}
        return [name for name in cls._get_param_names() if name not in others]

    @abstractmethod
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model, as `poisonproof.load` reads it."""

    @property
    def declared_classes(self) -> Any:
        """The label set that was declared, by `classes` or by the schema; None if none was."""
        if self.classes is not None or self.schema is None or not self.schema.classes:
            return self.classes
        return np.array(self.schema.classes)

    @property
    def drops_invalid_rows(self) -> bool:
        """Whether `invalid_rows`, or else the schema, leaves out training rows that do not fit."""
        rule = self.invalid_rows
        if rule is None:
            rule = "raise" if self.schema is None else self.schema.invalid_rows
        if rule not in ("raise", "drop"):
            raise InvalidInputError(f"invalid_rows must be 'raise' or 'drop', got {rule!r}.")
        return rule == "drop"

    def without_schema(self) -> Self:
        """Return a copy that takes features as the schema makes them, with declared classes."""
        bare = copy(self)
        bare.classes = self.declared_classes
        bare.schema = bare.schema_ = None
        return bare

    def set_schedule(self, n_jobs: int | None, verbose: int) -> Self:
        """Set how the work is scheduled, where it can be; no result depends on it."""
        if "n_jobs" in self.get_params(deep=False):
            self.set_params(n_jobs=n_jobs, verbose=verbose)
        return self

    @abstractmethod
    def _fingerprint(self) -> str:
        """Return the fingerprint in the manifest of this model, once it is saved."""

    @abstractmethod
    def _counted(self, X: Any) -> Certificates:
        """Return the outcome of the vote, with class indices as labels, whatever the threat."""

    @abstractmethod
    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        """Return certificates against a resolved threat, with class indices as labels."""

    def _usual_threat(self) -> str:
        """Return the threat that is certified if none is named."""
        return self.threats[0]

    @abstractmethod
    def _threat(self, threat: str | Threat, assumptions: tuple[str, ...]) -> Threat:
        """Return one of `threats` with the reach it has for this fitted classifier, or raise."""

    @abstractmethod
    def _mapped(self, X: Any) -> Any:
        """Map samples to features; a map that draws random numbers draws the same every time."""

    def _templates(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.template_names}

    @abstractmethod
    def _restore(
        self, reader: ModelReader, templates: Mapping[str, Any], trusted: Iterable[str]
    ) -> None:
        """Restore what was saved; parameters, classes and names are set already."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of every row that has most votes, ties to the smaller label."""
        counted = self._counted(X)
        labels: NDArray[Any] = self.classes_[counted.labels]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each label's share of the votes given, equal shares where all abstain."""
        counts = self._counted(X).counts.astype(np.float64)
        given = counts.sum(axis=1, keepdims=True)
        shares = np.full_like(counts, 1 / len(self.classes_))
        np.divide(counts, given, out=shares, where=given > 0)
        return shares

    def certify(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict, and prove for every row how large an attack its prediction survives.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples. With a schema: frames, lists of dicts, rows of cells, or `CheckedRows`.
        threat : {"insert_delete", "label_flip", "replace"}, optional
            What the attacker does to training rows; by default the strongest of the method.
        target : label, optional
            Certify against this one wrong label only.
        require_declared : bool, default=False
            Refuse to certify if classes were taken from the labels, or the types of columns from
            the training frame, instead of being declared.

        Returns
        -------
        Certificates
            ``labels`` are class values.

        Raises
        ------
        GuaranteeError
            If nothing proves the requested certificate.
        """
        resolved = self._resolve_threat(threat, require_declared)
        certificates = self._certified(X, resolved, self._class_index(target))
        return certificates.with_classes(self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        first = self._sees_samples_first()
        if first is not None:
            tags.input_tags = input_tags(first)
        tags.input_tags.pairwise = False
        return tags

    def _sees_samples_first(self) -> Any:
        """Return the features, or what stands in their place if there are none."""
        return self.features

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # asked first: scikit-learn reads all tags before
            check_is_fitted(self)

    def _checked(self, X: Any) -> Any:
        """Check samples to predict and bring them to canonical values."""
        self._check_fitted()
        read, X = isinstance(X, CheckedRows), self.encoded(X)
        if read and X.shape[1] == getattr(self, "n_features_in_", None) and np.isfinite(X.sum()):
            return take_canonical(X, None)  # nothing is left to check
        samples = SampleRules.of(self)
        X = samples.check(self, from_tensor(X), reset=False)
        samples.refuse(self, ~samples.usable(X))
        return take_canonical(X, None)

    def encoded(self, X: Any) -> Any:
        """Return samples as the schema makes them; without one, and rows of a file, as they are.

        Raises
        ------
        InvalidRowsError
            That names the first row that does not fit.
        """
        if isinstance(X, CheckedRows):
            return X.X
        if self.schema_ is None:
            return X
        rows = self._read(X, self.schema_.reading(labelled=False, grouped=False))
        rows.refuse_problems()
        return rows.X

    def read_training(
        self, X: Any, y: Any, groups: Any, weight: Any, *, reset: bool
    ) -> tuple[Any, Any, Any, Any, int]:
        """Return training rows as the schema reads them, and how many did not fit.

        Labels, contributors and weights come from their columns, or apart from them. What the
        schema holds out of training is left out.
        """
        if reset:
            self.schema_ = self._schema_for(X)
        schema = self.schema_
        if isinstance(X, CheckedRows):
            rows = X
        elif schema is None:
            return X, y, groups, weight, 0
        else:
            rows = self._read(X, schema, y, groups, weight)
            apart = (y, schema.label), (groups, schema.groups), (weight, None)
            y, groups, weight = (
                None if given is None or column else _safe_indexing(given, rows.places)
                for given, column in apart
            )
        if rows.whole and schema is not None and schema.test_share:
            trained = ~split_rows(rows, schema)
            rows = rows.only(trained)
            y, groups, weight = (
                None if given is None else _safe_indexing(given, np.flatnonzero(trained))
                for given in (y, groups, weight)
            )
        if y is None and rows.labels is not None:
            y = np.array(rows.classes)[rows.labels]
        if not self.drops_invalid_rows:
            advice = "Correct the row, or leave such rows out: invalid_rows='drop'."
            if schema is not None and not schema.frozen:
                advice += " Columns of the type object are read as numbers: give others a type "
                advice += "(astype('string'), pd.to_datetime), or declare a schema."
            rows.refuse_problems(advice)
        if "insert_delete" not in self.threats:
            refuse_labels(rows)
        if not len(rows):
            what = f" {rows.describe_problems()}" if rows.problems else " All are held out."
            raise InvalidRowsError(f"{rows.path} has no row to train on.{what}")
        groups = rows.groups if groups is None else groups
        return rows.X, y, groups, rows.weights if weight is None else weight, len(rows.problems)

    def _read(
        self, X: Any, schema: Schema, y: Any = None, groups: Any = None, weight: Any = None
    ) -> CheckedRows:
        """Encode rows in memory; what comes apart from them is text, as in a column."""
        apart = {"labelled": y is None, "grouped": groups is None, "weighted": weight is None}
        raw = frame_rows(X, schema.reading(**apart))
        check_consistent_length(raw.places, y, groups, weight)
        if y is not None and schema.label is not None:
            labels, without = cell_texts(as_objects(y))
            raw = replace(raw, labels=labels, label_reasons=without)
        if groups is not None and schema.groups is not None:
            texts, without = cell_texts(as_objects(groups))
            raw = replace(raw, groups=texts)
            for row, why in without.items():
                raw.reasons.setdefault(row, why)
        missing = bool(get_tags(self).input_tags.allow_nan)
        return check_rows(
            raw, schema, NAME, allow_missing="cells" if self.blanks_cells else missing
        )

    def _schema_for(self, X: Any) -> Schema | None:
        """Return how to read training rows: as declared, or by the types of a frame."""
        if self.schema is None:
            return typed_schema(X) if is_frame(X) and self._takes_numbers_alone() else None
        if not isinstance(self.schema, Schema):
            raise InvalidInputError(
                "schema is a poisonproof.data.Schema (load_schema reads one from a file), got "
                f"{type(self.schema).__name__}."
            )
        self.schema.require_frozen()
        return named_columns(self.schema, X)

    def _types_observed(self) -> bool:
        """Say whether the types of a frame decided how training rows are read.

        Those of a frame of numbers did, too: a text in one row would have made its column texts.
        """
        if self.schema_ is not None:
            return not self.schema_.frozen
        return self.container_ == "frame" and self._takes_numbers_alone()

    def _takes_numbers_alone(self) -> bool:
        """Say whether what sees samples first is known to take nothing but numbers."""
        return isinstance(self._sees_samples_first(), BatchedLearner)

    def _mapped_together(self, rows: Any) -> Any:
        """Map samples to predict; those that are mapped together must not meet in the map."""
        mapped = self._mapped(rows)
        if self.features_ is not None:
            refuse_mixing(self.features_, self._mapped, rows, mapped)
        return mapped

    def _class_index(self, target: Any) -> int | None:
        if target is None:
            return None
        position = np.flatnonzero(self.classes_ == target)
        if len(position) != 1:
            raise InvalidInputError(
                f"target must be one of the classes {self.classes_.tolist()}, got {target!r}."
            )
        return int(position[0])

    def _resolve_threat(self, threat: str | Threat | None, require_declared: bool) -> Threat:
        """Return a threat that this fitted classifier certifies, or raise."""
        self._check_fitted()
        assumed = () if self.declared_classes is not None else (OBSERVED_LABELS,)
        if assumed and require_declared:
            raise GuaranteeError(
                "the label set was taken from the training labels, so the attacker has a say in "
                "it. Declare it: classes=[...]."
            )
        if self._types_observed():
            if require_declared:
                raise GuaranteeError(
                    "the columns were read by the types of the training frame, in which the "
                    "attacker may have a say. Declare them: schema=freeze_schema(Schema(...)); or "
                    "give numbers as an array: X.to_numpy(dtype=float)."
                )
            assumed = (*assumed, OBSERVED_TYPES)
        threat = self._usual_threat() if threat is None else threat
        name = parse_threat(threat).name
        if name not in self.threats:
            advice = {name: "DPAClassifier or another method"}
            raise uncertified(type(self).__name__, self.threats, name, advice)
        return self._threat(threat, assumed)


class VotingMembers(CertifyingClassifier):
    """A fitted ensemble with one member per partition that predicts by plurality vote."""

    template_names: ClassVar = ("estimator", "features", "features_")

    estimator: Any
    n_partitions: int | None
    partitioner: Any
    n_jobs: int | None
    random_state: int
    verbose: int

    partitioner_: Partitioner
    partition_digests_: list[str]
    ensemble_: Ensemble
    categories_: Categories

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``estimator__`` reaches those of the default member, too."""
        nested = any(name.startswith("estimator__") for name in params)
        if nested and self.estimator is None and "estimator" not in params:
            params = {"estimator": self._template(), **params}
        found: Self = super().set_params(**params)
        return found

    def _template(self) -> Any:
        """Return the classifier that every member is a copy of."""
        return ScaledKernelClassifier() if self.estimator is None else self.estimator

    def _templates(self) -> dict[str, Any]:
        # The default member by its name, so that whoever leaves it out trains the same model.
        return super()._templates() | {"estimator": self._template()}

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return every member's vote.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.

        Returns
        -------
        ndarray of shape (n, k)
            Indices into ``classes_``, -1 where a member abstains.
        """
        samples, progress = self._member_samples(X), make_progress(self.verbose)
        return self.ensemble_.votes(samples, n_jobs=self.n_jobs, progress=progress)

    def _member_samples(self, X: Any) -> Any:
        """Return samples as members see them: checked, mapped, canonical."""
        X = self._checked(X)
        if self.features_ is None:
            return with_categories(X, self.categories_)
        return take_canonical(self._mapped_samples(X), None)

    def _mapped_samples(self, rows: Any) -> Any:
        """Map samples to predict, each alone: a user's map may do anything to several."""
        if isinstance(self.features_, FrozenTransformer) or is_own_map(self.features_):
            return self._mapped_together(rows)
        return map_alone(self._mapped, rows)

    def _mapped(self, X: Any) -> Any:
        transform = partial(mapped_by, self.features_)
        k = self.n_partitions or self.partitioner_.k
        return in_own_streams(self.random_state, k, lambda: transform(guarded(X)))

    def _counted(self, X: Any) -> Certificates:
        return certify_votes(self.votes(X), len(self.classes_))

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        return certify_votes(self.votes(X), len(self.classes_), threat=threat, target=target)

    def _usual_threat(self) -> str:
        certifies = self.partitioner_.certifies
        if self.threats[0] not in certifies:
            return self.threats[0]
        # Contributors are certified against whatever they do.
        return next(name for name in certifies if name in self.threats)

    def _sees_samples_first(self) -> Any:
        return self._template() if self.features is None else self.features

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")


def member_scores(classifier: VotingMembers, X: Any) -> NDArray[Any]:
    """Return every member's score for every class.

    Parameters
    ----------
    classifier : DPAClassifier or SSDPAClassifier
        Fitted, with members that have scores: closed-form learners, `TorchLearner`, or scikit-learn
        classifiers with `predict_proba`.
    X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
        Samples.

    Returns
    -------
    ndarray of shape (n, k, C)
        Higher is better; NaN for all classes where a member abstains. Scores of one member can be
        compared with each other, those of different members cannot.
    """
    if not isinstance(classifier, VotingMembers):
        raise InvalidInputError(
            "A run-off needs members that score classes, as those of DPAClassifier and "
            f"SSDPAClassifier do. Got {type(classifier).__name__}."
        )
    samples = classifier._member_samples(X)
    ensemble = getattr(classifier.ensemble_, "loaded", classifier.ensemble_)
    return ensemble_scores(ensemble, samples, len(classifier.classes_), classifier.n_jobs)


def ensemble_scores(
    ensemble: Ensemble, samples: Any, n_classes: int, n_jobs: int | None
) -> NDArray[Any]:
    """Return the scores of members in memory on samples as they see them, shape (n, k, C)."""
    if isinstance(ensemble, MemberList):
        return member_probabilities(ensemble.members, samples, n_classes)
    if isinstance(ensemble, StackedMembers):
        scores = ensemble.scores(samples, n_jobs=n_jobs, progress=Silent())
        abstains = np.isneginf(scores).all(axis=2)
        # Classes without rows come last.
        largest = np.finfo(np.float64).max
        scores = np.nan_to_num(scores, nan=-largest, posinf=largest, neginf=-largest)
        scores[abstains] = np.nan
        return scores
    of_rows = getattr(ensemble, "scores", None)
    if of_rows is None:
        raise InvalidInputError(
            f"A run-off needs scores, but members of {type(ensemble).__name__} give votes alone. "
            "Use closed-form members, TorchLearner or a classifier with predict_proba."
        )
    found: NDArray[Any] = of_rows(samples)
    return found


def certify_runoff(
    classifier: VotingMembers,
    X: Any,
    threat: str | Threat | None = None,
    target: Any = None,
    *,
    require_declared: bool = False,
) -> Certificates:
    """Predict and certify by run-off election instead of plurality.

    Parameters
    ----------
    classifier : DPAClassifier or SSDPAClassifier
        Fitted, with members that have scores; see `member_scores`.
    X, threat, target, require_declared
        As in `DPAClassifier.certify`.

    Returns
    -------
    Certificates
        ``labels`` are the class values that win the run-off; `predict` is the plurality's.

    Guarantee
    ---------
    As in `certify_scores`: no attack within the radius changes the winner.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = DPAClassifier(n_partitions=20, classes=range(10)).fit(X[:1500], y[:1500])
    >>> certificates = certify_runoff(clf, X[1500:])
    >>> certificates.method, bool(certificates.radius.max() >= 9)
    ('runoff', True)
    """
    own = getattr(classifier, "certified_runoff", None)
    if own is not None:
        resolved = classifier._resolve_threat(threat, require_declared)
        found: Certificates = own(X, resolved, classifier._class_index(target))
        return found.with_classes(classifier.classes_)
    scores = member_scores(classifier, X)
    if type(classifier)._certified is not VotingMembers._certified:
        raise GuaranteeError(
            "A run-off is certified where every row reaches one member, as in DPAClassifier and "
            f"SSDPAClassifier; {type(classifier).__name__} certifies by a rule of its own."
        )
    resolved = classifier._resolve_threat(threat, require_declared)
    target = classifier._class_index(target)
    return certify_scores(scores, threat=resolved, target=target).with_classes(classifier.classes_)
