"""Models on disk: a manifest and the content-addressed files it names, never pickle."""
