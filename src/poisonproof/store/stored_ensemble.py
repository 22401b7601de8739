"""An ensemble that lies in a store and is read when it first votes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.certificates.threats import SAME_BITS_ELSEWHERE
from poisonproof.exceptions import GuaranteeError, MissingExtraError, PoisonproofError, StoreError
from poisonproof.members.member import Ensemble, is_machine_error
from poisonproof.progress import Progress
from poisonproof.store.blocks import Item
from poisonproof.store.fingerprint import ELSEWHERE, fingerprint
from poisonproof.store.items import (
    LIST,
    SHARED_ITEM,
    decode_members,
    encode_members,
    failure_of,
    shared_of,
)
from poisonproof.store.reading import ModelReader


class StoredEnsemble(Ensemble):
    """The members of a stored model, some of them replaced since it was read.

    Parameters
    ----------
    reader : ModelReader
        The store.
    classes : ndarray of shape (C,)
        The label set.
    seed : int
        Seed of the members' streams when they vote.
    trusted : iterable of str
        Types outside scikit-learn that members may hold.
    replaced : mapping of int to Item
        Members that are no longer those of the store.

    Guarantee
    ---------
    No member votes before its file has the content its name stands for and the member has the
    digest the manifest lists. (Members of scikit-learn have one digest per version of the
    library; with other versions installed the file alone is checked.)
    """

    def __init__(
        self,
        reader: ModelReader,
        classes: NDArray[Any],
        seed: int,
        trusted: Iterable[str] = (),
        replaced: Mapping[int, Item] | None = None,
    ) -> None:
        self.reader = reader
        self._classes = classes
        self._seed = seed
        self._trusted = tuple(trusted)
        self._new = dict(replaced or {})
        self._loaded: Ensemble | None = None

    def __len__(self) -> int:
        return self.reader.manifest.k

    @property
    def loaded(self) -> Ensemble:
        """The members in memory (large ones in mapped files), read and checked once."""
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the vote of every member on every row of `X`, shape (n, k)."""
        ensemble = self.loaded
        try:
            votes = ensemble.votes(X, n_jobs=n_jobs, progress=progress)
        except Exception as error:  # arrays that are those of the file, but of no member
            if isinstance(error, PoisonproofError) or is_machine_error(error):
                raise
            raise self._damaged(error) from error
        lowest, highest = votes.min(initial=ABSTAIN), votes.max(initial=ABSTAIN)
        if lowest < ABSTAIN or highest >= len(self._classes):
            raise StoreError(f"{self.reader.place.path}: a member votes for no class of the model.")
        return votes

    def _damaged(self, error: Exception) -> StoreError:
        said = f"{type(error).__name__}: {str(error)[:200]}"
        return StoreError(f"{self.reader.place.path} is damaged: {said}.")

    def digests(self) -> list[str]:
        """Return one digest per member, as the manifest lists them."""
        found = list(self.reader.manifest.member_digests)
        for index, item in self._new.items():
            found[index] = item.digest
        return found

    def failures(self) -> dict[int, str]:
        """Return why members abstain whose learner raised."""
        failures = {i: t for i, t in self.reader.manifest.failures.items() if i not in self._new}
        for index, item in self._new.items():
            reason = failure_of(item)
            if reason is not None:
                failures[index] = reason
        return dict(sorted(failures.items()))

    def replaced(self, which: Sequence[int], members: Ensemble) -> StoredEnsemble:
        """Return a copy in which member ``which[j]`` is member j of `members`; reads nothing."""
        manifest = self.reader.manifest
        family, shared, _ = shared_of(members)
        if len(which) and (family, shared) != (manifest.family, manifest.shared):
            raise StoreError(
                "the new members have other settings than the stored ones; fit the model again."
            )
        copy = self.with_items(encode_members(members, which, [""] * len(self)))
        if self._loaded is not None:
            copy._loaded = self._loaded.replaced(which, members)
        return copy

    def with_items(self, items: Sequence[Item]) -> StoredEnsemble:
        """Return a copy in which some members are others, as they would be stored."""
        new = self._new | {item.index: item for item in items}
        return StoredEnsemble(self.reader, self._classes, self._seed, self._trusted, new)

    def item(self, index: int) -> Item:
        """Return one member as it is stored; the digest of a new one's partition is left open."""
        return self._new[index] if index in self._new else self.reader.member(index)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Members of machines of another kind are as good as those machines are alike."""
        return (SAME_BITS_ELSEWHERE,) if self.reader.manifest.environment.get(ELSEWHERE) else ()

    @property
    def is_changed(self) -> bool:
        """Whether members have been replaced since the store was read."""
        return bool(self._new)

    def shared_item(self) -> Item | None:
        """Return the arrays that all members have in common."""
        entry = self.reader.manifest.shared_arrays
        return None if entry is None else self.reader.block(entry)[SHARED_ITEM]

    def _read(self) -> Ensemble:
        manifest, shared = self.reader.manifest, self.shared_item()
        arrays: Mapping[str, Any] = {} if shared is None else shared.tensors
        try:
            items = self.reader.members()
            for index, item in self._new.items():
                items[index] = item
            ensemble = decode_members(
                manifest.family,
                manifest.shared,
                arrays,
                items,
                self._classes,
                self._seed,
                self._trusted,
            )
            self._check(ensemble)
        except Exception as error:  # values that are none make code raise nearly anything
            if isinstance(error, (StoreError, GuaranteeError, MissingExtraError, MemoryError)):
                raise
            raise self._damaged(error) from error
        return ensemble

    def _check(self, ensemble: Ensemble) -> None:
        """Raise `StoreError` for the first member that is not the one the manifest lists."""
        manifest = self.reader.manifest
        packages = manifest.environment.get("packages")
        if manifest.family == LIST and packages != fingerprint()["packages"]:
            return  # the state of an estimator is digested as its own version of the library has it
        for index, (found, listed) in enumerate(
            zip(ensemble.digests(), self.digests(), strict=True)
        ):
            if found != listed:
                raise StoreError(
                    f"{self.reader.place.path}: member {index} is not the member that was saved."
                )
