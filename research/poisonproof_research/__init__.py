"""The laboratory of poisonproof: the paper's tables made again, and all methods compared."""
