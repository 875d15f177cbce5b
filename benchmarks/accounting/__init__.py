"""Journal to PostgreSQL, measured: events per second sustained, and how late they settle."""
