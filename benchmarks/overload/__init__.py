"""Overload: what is still served in time when far more is asked for than can be."""
