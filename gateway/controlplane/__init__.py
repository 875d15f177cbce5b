"""The control plane: the admin API and the publication of the Snapshot."""
