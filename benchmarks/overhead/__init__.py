"""What the data plane costs: direct, nginx as proxy and Forebay, side by side in one run."""
