"""``python -m poisonproof`` is the command line."""

from __future__ import annotations

from poisonproof.cli import main

if __name__ == "__main__":
    main()
