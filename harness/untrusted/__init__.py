"""Code that shares a process with a submission. Nothing imports it; it is started by name."""
