"""What research adds to a finished run: the exam of its network."""
