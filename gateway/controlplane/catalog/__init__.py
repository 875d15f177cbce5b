"""Deployments, replicas, routes and the version of all that a Snapshot holds."""
