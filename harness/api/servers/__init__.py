"""Servers for programs: HTTP and the Model Context Protocol."""
