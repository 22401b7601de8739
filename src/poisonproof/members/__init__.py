"""Members: what they are, how they are trained and how they vote."""
