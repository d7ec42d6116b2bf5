"""Random numbers from a secret key, for inputs that can be drawn again.

Trusted side. A contestant learns some numbers (seeds of calls, places that are held back). Of a usual generator they
would reveal the state, and so all inputs to come; of BLAKE2b with a secret key they reveal nothing.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, NoReturn


class KeyedRandom(random.Random):
    """Numbers from BLAKE2b in counter mode.

    Args:
        key: 64 hex digits; one key serves one evaluation.
        purpose: Streams for different purposes are independent.

    Raises:
        ValueError: The key is no such text.
    """

    def __init__(self, key: str, purpose: str) -> None:
        self._key = bytes.fromhex(key)
        if len(self._key) != 32:
            raise ValueError(f"a key has 64 hex digits, not {2 * len(self._key)}")
        self._purpose = hashlib.blake2b(purpose.encode(), digest_size=16).digest()
        self._blocks = 0
        super().__init__()

    def getrandbits(self, k: int, /) -> int:
        """Return a number of `k` random bits."""
        data = b""
        while len(data) * 8 < k:
            count = self._blocks.to_bytes(16, "little")
            data += hashlib.blake2b(count, key=self._key, person=self._purpose).digest()
            self._blocks += 1
        return int.from_bytes(data, "little") & (1 << k) - 1

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *_: Any, **__: Any) -> None:
        """Do nothing: the key decides all numbers."""

    def getstate(self) -> NoReturn:
        """Raise: there is no state but the key."""
        raise NotImplementedError("a KeyedRandom has no state")

    setstate = getstate  # type: ignore[assignment]
