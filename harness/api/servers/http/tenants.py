"""Tenants of the HTTP service: hashed tokens, rights and limits.

A token has 256 random bits, so a plain SHA-256 of it can't be guessed. The file holds only the hashes, is read again
when it changes, and may list several tokens of a tenant, each with a last day.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from harness.core.config import ConfigError
from harness.core.yaml_file import read_yaml, reason_of

REREAD_S = 1.0
"""How often the file's time of change is looked at, in seconds."""

TOP_PRIORITY = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")


class TokenHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A token's SHA-256 in hex, and the last day (UTC) on which it is valid."""

    sha256: str
    until: date | None = None


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rights and limits of one tenant.

    Attributes:
        name: Its name: the author of its records. Comes from the key in the file.
        tokens: Hashes of its tokens.
        open_jobs: Most unfinished jobs.
        requests_per_s: Most requests a second, on average; twice as many at once.
        connections: Most requests at the same time, waiting ones included.
        max_priority: Highest priority that its jobs may have, at most 10.
        problem_texts: Whether it may send problems as text. They are code that runs outside the sandbox.
    """

    name: str = ""
    tokens: tuple[TokenHash, ...] = ()
    open_jobs: int = 10_000
    requests_per_s: float = 100.0
    connections: int = 256
    max_priority: int = 0
    problem_texts: bool = False


class TenantsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of a tenants file."""

    format: int
    tenants: dict[str, Tenant]


LOCAL = Tenant(name="local", requests_per_s=1_000.0, max_priority=TOP_PRIORITY)
"""The only tenant of a service without a tenants file."""


def new_token() -> tuple[str, str]:
    """Return a new token and its SHA-256 in hex."""
    token = f"kh_{secrets.token_urlsafe(32)}"
    return token, _hash(token)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Tenants:
    """The tenants of a file, or `LOCAL` alone.

    Args:
        file: The tenants file, or None.
        say: Gets a line if the changed file can't be read; then the earlier content stays in force.

    Raises:
        ConfigError: The file can't be read, or is invalid.
    """

    def __init__(self, file: Path | None, say: Callable[[str], None]) -> None:
        self.file, self._say = file, say
        self._looked_s, self._stamp = time.monotonic(), self._stamped()
        self._by_hash = {} if file is None else _read(file)

    def holder(self, authorization: str | None) -> Tenant | None:
        """Return the tenant of a header `Authorization: Bearer TOKEN`, or None."""
        if self.file is None:
            return LOCAL
        self._refresh(self.file)
        scheme, _, token = (authorization or "").partition(" ")
        tenant, known = self._by_hash.get(_hash(token.strip()), (None, None))
        if scheme.lower() != "bearer" or known is None:
            return None
        return tenant if known.until is None or datetime.now(UTC).date() <= known.until else None

    def _refresh(self, file: Path) -> None:
        if time.monotonic() < self._looked_s + REREAD_S:
            return
        self._looked_s = time.monotonic()
        if (stamp := self._stamped()) != self._stamp:
            self._stamp = stamp
            try:
                self._by_hash = _read(file)
            except ConfigError as error:
                self._say(f"{error}; the earlier tenants stay in force")

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            found = self.file.stat() if self.file is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_ino, found.st_size)


def _read(file: Path) -> dict[str, tuple[Tenant, TokenHash]]:
    """Return each token's tenant by the token's hash. Raises `ConfigError`."""
    try:
        held = msgspec.convert(read_yaml(file), TenantsFile)
        if held.format != 1:
            raise ValueError(f"`format` must be 1, not {held.format}")
        found: dict[str, tuple[Tenant, TokenHash]] = {}
        for name, tenant in held.tenants.items():
            if not _NAME.match(name):
                raise ValueError(f"{name!r:.80} is no name of a tenant: use letters, digits, dots, _ and -")
            if min(tenant.open_jobs, tenant.requests_per_s, tenant.connections) <= 0:
                raise ValueError(f"{name}: limits must be above 0")
            if tenant.max_priority > TOP_PRIORITY:
                raise ValueError(f"{name}: max_priority must be at most {TOP_PRIORITY}")
            for token in tenant.tokens:
                if not _HASH.match(token.sha256):
                    raise ValueError(f"{name}: sha256 must be 64 hex digits, as harness serve --new-token prints them")
                if token.sha256 in found:
                    raise ValueError(f"{name}: a token occurs twice; give each tenant its own")
                found[token.sha256] = (msgspec.structs.replace(tenant, name=name), token)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"--tenants {file}: {reason_of(error)}") from error
    if not found:
        raise ConfigError(f"--tenants {file}: no tenant has a token; make one with harness serve --new-token")
    return found
