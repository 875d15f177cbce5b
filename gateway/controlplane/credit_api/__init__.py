"""Credit over HTTP: grants, how organizations pay, and what is left."""
