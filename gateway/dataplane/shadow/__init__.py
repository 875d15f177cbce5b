"""Asks another tier what a client's request got an answer to, and scores both."""
