"""Code that shares a process with a submission; started by name only."""
