"""NiN in kernels whose every program belongs to one member."""
