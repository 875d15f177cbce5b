"""The prompt classifier on the request path: no torch, no numpy, no I/O but the reading of its weights."""
