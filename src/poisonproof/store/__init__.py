"""Models on disk: a manifest and the files it names, never pickle."""

from poisonproof.store.codecs import (
    decode_ensemble,
    decode_object,
    encode_ensemble,
    encode_object,
)
from poisonproof.store.directory import read_model, write_model
from poisonproof.store.fingerprint import fingerprint

__all__ = [
    "decode_ensemble",
    "decode_object",
    "encode_ensemble",
    "encode_object",
    "fingerprint",
    "read_model",
    "write_model",
]
