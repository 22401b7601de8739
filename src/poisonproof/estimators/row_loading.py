"""From a store back to a classifier whose voters are rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.estimators.cluster_votes import ClusterVoteClassifier
from poisonproof.estimators.linear_labels import LinearLabelClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.row_saving import stored_arrays
from poisonproof.estimators.row_voting import RowVoting
from poisonproof.estimators.weighted_votes import WeightedVoteClassifier
from poisonproof.partition import partitioner_from_specification
from poisonproof.store import ModelReader

__all__ = ["restored_rows"]

_CLASSIFIERS: dict[str, type[RowVoting]] = {
    kind.__name__: kind
    for kind in (
        ClusterVoteClassifier,
        LinearLabelClassifier,
        NeighborVoteClassifier,
        WeightedVoteClassifier,
    )
}


def restored_rows(
    reader: ModelReader, templates: Mapping[str, Any], classes: NDArray[Any]
) -> RowVoting:
    """Return the classifier that a store describes; its arrays are read and checked now."""
    manifest, model = reader.manifest, reader.manifest.model
    kind = _CLASSIFIERS[model["classifier"]]
    parameters = {name: model["parameters"][name] for name in kind.plain_parameters}
    if model["partitioner"] is not None:
        parameters["partitioner"] = partitioner_from_specification(model["partitioner"])
    declared = classes if model["classes_declared"] else None
    classifier = kind(features=templates["features"], classes=declared, **parameters)
    classifier.classes_ = classes
    classifier.n_dropped_ = manifest.notes["n_dropped"]
    (classifier.n_rows_,) = manifest.partition_sizes
    (classifier.data_digest_,) = manifest.partition_digests
    if model["n_features_in"] is not None:
        classifier.n_features_in_ = model["n_features_in"]
    if model["feature_names_in"] is not None:
        classifier.feature_names_in_ = np.asarray(model["feature_names_in"], dtype=object)
    classifier._restore(templates, stored_arrays(reader, kind.array_names))
    return classifier
