"""Deployments, replicas and routes."""
