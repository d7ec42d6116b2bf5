"""The gate before all routes: tokens, rates, sizes, and the count of requests.

It answers before a body is read. Without tokens it also refuses what a web page in the user's browser could send:
other names of this host (DNS rebinding), and bodies that a form could post.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.api.servers.http.meters import Meters
from harness.api.servers.http.tenants import Tenant, Tenants

MAX_BODY_BYTES = 8 * 2**20
UNGUARDED = frozenset({"/healthz", "/readyz", "/openapi.json"})
METHODS = frozenset({"GET", "POST", "DELETE"})
_OWN_NAME = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


@dataclass(slots=True)
class _TenantUse:
    """What a tenant uses now: a token bucket of requests, and its open requests."""

    left: float = 0.0
    at_s: float = float("-inf")
    active: int = 0

    def take(self, per_s: float) -> float:
        """Take one request; return 0, or after how many seconds there is one."""
        now = time.monotonic()
        most = max(1.0, 2.0 * per_s)
        self.left, self.at_s = min(most, self.left + (now - self.at_s) * per_s), now
        if self.left < 1.0:
            return (1.0 - self.left) / per_s
        self.left -= 1.0
        return 0.0


class HttpGate:
    """ASGI middleware; a request that passes has `state.tenant`.

    Args:
        app: The routes.
        tenants: Knows the tokens.
        meters: Counts the requests.
        draining: Whether the service takes no more jobs.
    """

    def __init__(self, app: ASGIApp, tenants: Tenants, meters: Meters, draining: Callable[[], bool]) -> None:
        self._app, self._tenants, self._meters, self._draining = app, tenants, meters, draining
        self._uses: defaultdict[str, _TenantUse] = defaultdict(_TenantUse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            refusal, tenant = self._refused(scope)
            if refusal is not None:
                if refusal.status_code == 413:
                    await _discard(receive)
                await refusal(scope, receive, counted)
            elif tenant is None:
                await self._app(scope, receive, counted)
            else:
                scope.setdefault("state", {})["tenant"] = tenant
                use = self._uses[tenant.name]
                use.active += 1
                try:
                    await self._app(scope, receive, counted)
                finally:
                    use.active -= 1
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = getattr(scope.get("route"), "path", "other")
            self._meters.requested(method, route, status, time.perf_counter() - begin)

    def _refused(self, scope: Scope) -> tuple[JSONResponse | None, Tenant | None]:
        """Return the refusal of a request, or its tenant; neither if the route needs none."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._tenants.file is None and not _OWN_NAME.fullmatch(host):
            return _no(403, f"host {host!r:.60} is not this machine: call 127.0.0.1 or localhost"), None
        if scope["path"] in UNGUARDED:
            return None, None
        tenant = self._tenants.holder(headers.get("authorization"))
        if tenant is None:
            said = "no valid token: send the header Authorization: Bearer TOKEN"
            return _no(401, said, {"www-authenticate": "Bearer"}), None
        use = self._uses[tenant.name]
        if use.active >= tenant.connections:
            said = f"{tenant.connections} requests of yours are open, which is the limit: wait for an answer"
            return _no(429, said, {"retry-after": "1"}), None
        if wait_s := use.take(tenant.requests_per_s):
            said = f"more than {tenant.requests_per_s:g} requests a second: try again after Retry-After"
            return _no(429, said, {"retry-after": str(int(wait_s) + 1)}), None
        return self._refused_body(scope["method"], headers), tenant

    def _refused_body(self, method: str, headers: Headers) -> JSONResponse | None:
        length = headers.get("content-length")
        if method == "POST":
            if self._draining():
                said = "the server is shutting down and takes no new jobs: send it again later"
                return _no(503, said, {"retry-after": "10"})
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return _no(415, "the body must be JSON: send the header Content-Type: application/json")
            if length is None:
                return _no(411, "send the body with a Content-Length")
        elif "transfer-encoding" in headers:
            return _no(411, f"{method} takes no body")
        if length is not None and not (length.isdecimal() and int(length[:20]) <= MAX_BODY_BYTES):
            return _no(413, f"the body has more than {MAX_BODY_BYTES} bytes: send fewer jobs at once")
        return None


async def _discard(receive: Receive) -> None:
    """Read a too large body up to a limit: a client that still sends reads no answer."""
    left = 4 * MAX_BODY_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return


def _no(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": reason}, status, {"connection": "close", **(headers or {})})
