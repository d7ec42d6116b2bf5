"""What the harness's own kernels were compiled to, kept in the cache folder from one process to the next.

Edge, trusted side; the `Images` of `nvrtc`. Imports `disk`. No process of a submission's can write to that folder.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from harness.disk import replace_whole

_DIGEST_BYTES = hashlib.sha256().digest_size


class KeptImages:
    """Files `kernels/KEY.cubin` below a cache folder: the SHA-256 of the image, then the image. One that is cut off or
    was changed counts as none, and a folder that can't be written costs the next process its compiling, no more."""

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "kernels"

    def held(self, key: str) -> bytes | None:
        try:
            told = self._path(key).read_bytes()
        except OSError:
            return None
        digest, image = told[:_DIGEST_BYTES], told[_DIGEST_BYTES:]
        return image if image and hashlib.sha256(image).digest() == digest else None

    def keep(self, key: str, image: bytes) -> None:
        with suppress(OSError):
            replace_whole(self._path(key), hashlib.sha256(image).digest() + image)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.cubin"
