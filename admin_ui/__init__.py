"""Server-rendered admin pages over the control API."""
