"""Organizations, projects, members and API keys."""
