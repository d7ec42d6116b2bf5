"""Score GPU kernels: build them, check them in a sandbox, time them.

`from harness import Harness` is the Python API (`harness.api`). It is imported at first use, so that
`import harness` stays fast.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import (
        Group,
        Harness,
        HarnessClosed,
        Preparing,
        Result,
        RewardPolicy,
        SpeedShape,
        as_completed,
        load_records,
        reward,
        to_arrow,
        to_polars,
    )

__version__ = "0.1.0"

__all__ = [
    "Group",
    "Harness",
    "HarnessClosed",
    "Preparing",
    "Result",
    "RewardPolicy",
    "SpeedShape",
    "__version__",
    "as_completed",
    "load_records",
    "reward",
    "to_arrow",
    "to_polars",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in __all__:
        from harness import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
