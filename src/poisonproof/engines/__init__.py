"""How members are trained and asked."""
