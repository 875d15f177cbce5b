"""Uploaded weights of the prompt classifier over HTTP."""
