"""What shadow evaluation costs and what it has found, in PostgreSQL."""
