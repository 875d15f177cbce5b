"""What vLLM says of itself: its metrics page, its model list."""
