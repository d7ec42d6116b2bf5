"""Sandboxed processes that find and compile a solution's extensions."""
