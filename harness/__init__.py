"""A harness that scores GPU kernels: builds them, checks them against a reference in a sandbox, and times both."""

__version__ = "0.1.0"
