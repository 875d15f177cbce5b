"""What a decision of the admission costs the data plane, in CPU."""
