"""Imports `torch.utils.cpp_extension` without letting it open the GPU.

For zygotes: that import asks `torch.cuda.is_available()`, only to decide on a warning, and asking initialises the CUDA
driver, which no fork of the process could use afterwards. Imports torch and nothing of the harness.
"""

from __future__ import annotations

import importlib

import torch


def _import() -> None:
    real = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        importlib.import_module("torch.utils.cpp_extension")
    finally:
        torch.cuda.is_available = real


_import()
