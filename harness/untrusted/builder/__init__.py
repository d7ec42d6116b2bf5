"""The processes that import a solution to find its extensions, and compile them."""
