"""Import `torch.utils.cpp_extension` without initialising the CUDA driver.

For zygotes. The import calls `torch.cuda.is_available()` to decide on a warning. That call initialises the driver, and
a fork of this process could not use it afterwards.
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
