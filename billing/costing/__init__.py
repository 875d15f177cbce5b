"""What serving costs, on paper and from recorded hours: estimates, capacity, crossover. Pure."""
