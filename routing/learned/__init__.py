"""Training and judging the prompt classifier; needs torch (training) and numpy, never on a request's path."""
