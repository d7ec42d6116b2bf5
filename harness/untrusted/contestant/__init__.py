"""The process in which one solution is imported and called. Started by name, imported by nothing."""
