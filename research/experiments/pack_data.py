"""Pack a dataset for another machine: only what the rows of the tables need, in checked chunks.

Run: python research/experiments/pack_data.py mnist --cache DIR --out scratch/pack/mnist
Then: poisonproof reproduce table1 --rows mnist-dpa-1200 --data scratch/pack/mnist
"""

from __future__ import annotations

import argparse
from pathlib import Path

from poisonproof_research.reproduction.row_data import data_from_cache, write_pack


def main() -> None:
    """Read one imported dataset and write its pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="mnist, cifar10, gtsrb or gtsrb-equalized")
    parser.add_argument("--cache", type=Path, help="folder of imported datasets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the chunks")
    parser.add_argument("--chunk-mb", type=int, default=24, help="megabytes before compression")
    given = parser.parse_args()
    data = data_from_cache(given.name, given.cache)
    for path in write_pack(data, given.out, largest=given.chunk_mb * 1_000_000):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
