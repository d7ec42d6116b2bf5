"""The process that imports and calls one solution, started by name."""
