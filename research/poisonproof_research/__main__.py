"""Run the command line of the laboratory: ``python -m poisonproof_research``."""

from __future__ import annotations

from poisonproof_research.cli import main

main()
