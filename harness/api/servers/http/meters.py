"""Prometheus metrics of the HTTP service; none names a tenant or a job."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from harness.core.status import Status

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)


class Meters:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("harness_http_requests", "Requests.", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "harness_http_request_seconds", "Time of a request.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._jobs = Gauge("harness_jobs", "Jobs in the store.", ("state",), registry=registry)
        self._records = Counter("harness_records", "Records by this server.", ("status",), registry=registry)
        self._waited = Histogram(
            "harness_job_seconds", "Time from submission to record.", buckets=_SECONDS, registry=registry
        )

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that took so many seconds."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def finished(self, status: Status, seconds: float) -> None:
        """Count a record, so many seconds after its submission."""
        self._records.labels(status.value).inc()
        self._waited.observe(max(0.0, seconds))

    def text(self, counts: dict[str, int]) -> bytes:
        """Return all metrics in Prometheus' text format; `counts` are jobs by state."""
        for state, number in counts.items():
            self._jobs.labels(state).set(number)
        return generate_latest(self._registry)
