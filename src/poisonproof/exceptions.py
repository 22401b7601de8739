"""Every error that poisonproof raises on purpose.

::

    PoisonproofError
    ├── GuaranteeError          a certificate would be void
    ├── InvalidInputError       (also ValueError) the data or a parameter is wrong
    │   ├── InvalidVotesError       votes outside the label set, not integers, no members
    │   ├── InvalidRowsError        rows that no partition can hold
    │   └── UnknownLabelError       a label outside the declared classes
    ├── StoreError              (also ValueError) a saved model is damaged, foreign or unwritable
    ├── ClusterError            (also RuntimeError) a cluster cannot be reached or has no workers
    ├── SelfCheckError          (also RuntimeError) members could not be trained again to compare
    └── MissingExtraError       (also ImportError) an optional dependency is not installed

    MemberWarning               (UserWarning) some members abstain because their learner raised
    ClusterWarning              (UserWarning) workers were lost or refused
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class PoisonproofError(Exception):
    """Base class of the errors below."""


class GuaranteeError(PoisonproofError):
    """The request would return a certificate that nothing proves."""


class InvalidInputError(PoisonproofError, ValueError):
    """Data or a parameter that poisonproof cannot accept."""


class InvalidVotesError(InvalidInputError):
    """A matrix that cannot be votes: wrong shape, type or range."""


class InvalidRowsError(InvalidInputError):
    """Rows without a canonical form, or that the members cannot take."""


class UnknownLabelError(InvalidInputError):
    """A label outside the declared classes."""


class StoreError(PoisonproofError, ValueError):
    """A saved model that is damaged, foreign or cannot be written."""


class ClusterError(PoisonproofError, RuntimeError):
    """A cluster that cannot be reached, has no worker left or loses every worker of a partition."""


class SelfCheckError(PoisonproofError, RuntimeError):
    """Some members could not be trained again in a fresh process, so they were not compared."""


class MissingExtraError(PoisonproofError, ImportError):
    """An optional dependency is missing.

    Parameters
    ----------
    package : str
        What could not be imported.
    extra : str
        The extra of poisonproof that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'poisonproof[{extra}]'"
        )
        self.package = package
        self.extra = extra


class ClusterWarning(UserWarning):
    """Workers of a cluster were lost, and their members retried elsewhere, or were refused."""


class MemberWarning(UserWarning):
    """Some members abstain because their learner raised on their partition."""


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Name the extra to install if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra) from error
