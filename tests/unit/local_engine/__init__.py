"""The local engine's parts that need no model."""
