"""Models on disk: a manifest and the content-addressed files it names, never pickle."""

from __future__ import annotations

from poisonproof.store.blocks import Item
from poisonproof.store.fingerprint import ELSEWHERE, differences, fingerprint, with_elsewhere
from poisonproof.store.items import (
    SHARED_ITEM,
    decode_members,
    decode_rows,
    encode_members,
    encode_rows,
    failure_of,
    shared_of,
    without_addresses,
)
from poisonproof.store.manifest import Manifest, json_digest
from poisonproof.store.objects import decode_object, encode_object, types_of
from poisonproof.store.reading import ModelReader
from poisonproof.store.stored_ensemble import StoredEnsemble
from poisonproof.store.training_run import TrainingRun
from poisonproof.store.writing import (
    FolderWriter,
    ModelWriter,
    check_target,
    open_writer,
    refuse_another,
)

__all__ = [
    "ELSEWHERE",
    "SHARED_ITEM",
    "FolderWriter",
    "Item",
    "Manifest",
    "ModelReader",
    "ModelWriter",
    "StoredEnsemble",
    "TrainingRun",
    "check_target",
    "decode_members",
    "decode_object",
    "decode_rows",
    "differences",
    "encode_members",
    "encode_object",
    "encode_rows",
    "failure_of",
    "fingerprint",
    "json_digest",
    "open_writer",
    "refuse_another",
    "shared_of",
    "types_of",
    "with_elsewhere",
    "without_addresses",
]
