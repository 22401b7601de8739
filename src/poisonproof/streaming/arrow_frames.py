"""Arrow tables as data frames that keep every value."""

from __future__ import annotations

from typing import Any

__all__ = ["to_frame"]


def to_frame(table: Any) -> Any:
    """Return a pyarrow table as a pandas frame in which integers stay integers beside nulls."""
    import pandas as pd
    import pyarrow as pa

    signs = {"int": "Int", "uint": "UInt"}
    exact: dict[Any, Any] = {
        getattr(pa, f"{sign}{bits}")(): getattr(pd, f"{name}{bits}Dtype")()
        for sign, name in signs.items()
        for bits in (8, 16, 32, 64)
    }
    exact[pa.bool_()] = pd.BooleanDtype()
    return table.to_pandas(types_mapper=exact.get, ignore_metadata=True)
