"""Rate limits over HTTP."""
