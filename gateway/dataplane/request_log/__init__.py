"""One JSON line for each settled request, where an operator wants that."""
