"""What Prometheus reads at ``/metrics``: requests by route and status, their seconds, the engine and the processes.

One process answers all requests, in threads, so it counts all of them; the processes that search are only measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from haybale import __version__
from haybale.service.workspace import Workspace

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds


class Metrics(Collector):
    """Metrics of a service, in a registry of its own. Several threads may use it.

    Parameters
    ----------
    gauges : callable
        Returns what is measured when Prometheus asks, such as :func:`workspace_gauges`.
    """

    def __init__(self, gauges: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._gauges = gauges
        self._registry = CollectorRegistry()
        self._running = Gauge("haybale_requests_running", "Requests that are running.", registry=self._registry)
        labels = ("method", "route", "status")
        self._requests = Counter("haybale_requests", "Answered requests.", labels, registry=self._registry)
        self._seconds = Histogram(
            "haybale_request_seconds", "Seconds of requests.", ("route",), registry=self._registry, buckets=BOUNDS
        )
        Info("haybale", "The version of haybale.", registry=self._registry).info({"version": __version__})
        start = Gauge("haybale_start_time_seconds", "When the service began, in Unix time.", registry=self._registry)
        start.set(time.time())
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def begin(self) -> None:
        """Count a request that is running."""
        self._running.inc()

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, or whose client has gone."""
        self._running.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what is measured when Prometheus asks."""
        yield from self._gauges()

    def exposition(self, accepted: str | None) -> tuple[bytes, str]:
        """Return the metrics and their content type, in a format that the header ``Accept`` of a request names."""
        encode, content_type = choose_encoder(accepted or "")
        return encode(self._registry), content_type


def workspace_gauges(workspace: Workspace) -> Iterator[GaugeMetricFamily]:
    """Yield the sizes of the engine and of the store, and the processes that search."""
    collection, store = workspace.engine.snapshot().collection, workspace.store
    yield GaugeMetricFamily("haybale_documents", "Documents of the engine.", collection.n_documents)
    yield GaugeMetricFamily("haybale_passages", "Passages of the engine.", collection.n_passages)
    yield GaugeMetricFamily("haybale_topics", "Topics of the reviews.", len(store.topics()))
    yield GaugeMetricFamily("haybale_judgement_rows", "Rows of the table of judgements.", store.n_rows())
    processes = workspace.processes
    if processes is not None:
        yield GaugeMetricFamily("haybale_search_processes_ready", "Processes that can search.", processes.n_ready)
        name = "haybale_search_process_resident_bytes"
        memory = GaugeMetricFamily(name, "Memory of each process that searches.", labels=["process"])
        for number, process in processes.process_ids.items():
            memory.add_metric([str(number)], resident_bytes(process))
        yield memory


def resident_bytes(process: int) -> int:
    """Return the memory of a process; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * 4096
