"""Ways to change a stored model that its owner did not want."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from poisonproof.store.manifest import FORMAT, VERSION, canonical_json, json_digest


def edit_manifest(model: Path, path: list[str], value: Any, *, careful: bool) -> None:
    """Set one entry of a manifest; a careful liar also corrects the fingerprints."""
    file = model / "manifest.json"
    manifest = json.loads(file.read_text())
    entry = manifest
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    file.write_bytes(reprinted(manifest) if careful else canonical_json(manifest))


def reprinted(manifest: dict[str, Any]) -> bytes:
    """Return the text of a manifest with the fingerprints its content has."""
    data = json_digest([manifest.get("partition_sizes"), manifest.get("partition_digests")])
    fingerprint = json_digest(
        {
            "format": [FORMAT, VERSION],
            "model": manifest["model"],
            "environment": manifest["environment"],
            "spec": manifest["spec"],
            "data": data,
            "family": manifest.get("family"),
            "shared": manifest.get("shared"),
            "members": manifest.get("member_digests"),
        }
    )
    return canonical_json(manifest | {"data_fingerprint": data, "fingerprint": fingerprint})
