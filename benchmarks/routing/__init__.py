"""The prompt classifier's quality, from the shared file of judged prompts."""
