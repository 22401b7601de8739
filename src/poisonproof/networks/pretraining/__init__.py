"""Features learned from images without labels: SimCLR and RotNet."""
