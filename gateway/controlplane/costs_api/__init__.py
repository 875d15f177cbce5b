"""What served traffic cost, how it was served, and what it would cost elsewhere, over HTTP."""
