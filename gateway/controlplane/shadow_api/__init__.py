"""What shadow evaluation has found of each route's tiers, and what follows from it."""
