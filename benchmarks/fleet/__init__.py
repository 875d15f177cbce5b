"""A fleet of simulated engines on a clock of its own: what the choice of a replica is worth."""
