"""What Prometheus reads about the matters of a service, without opening any."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from haybale.service.matters.kept_matters import Matters
from haybale.service.metrics import resident_bytes

_STATUSES = ("open", "opening", "closed", "broken")


def matter_gauges(matters: Matters) -> Iterator[GaugeMetricFamily]:
    """Yield the number of matters by status, and of open ones, by name, the documents and the memory of processes."""
    all_matters = matters.all()
    statuses = [matter.status for matter in all_matters]
    by_status = GaugeMetricFamily("haybale_matters", "Matters by status.", labels=["status"])
    for status in _STATUSES:
        by_status.add_metric([status], statuses.count(status))
    yield by_status
    documents = GaugeMetricFamily("haybale_matter_documents", "Documents of each open matter.", labels=["matter"])
    name = "haybale_matter_search_processes_resident_bytes"
    memory = GaugeMetricFamily(name, "Memory of the processes that search an open matter.", labels=["matter"])
    for matter in all_matters:
        opened = matter.opened
        if opened is None:
            continue
        workspace = opened.workspace
        documents.add_metric([matter.name], workspace.engine.snapshot().collection.n_documents)
        if workspace.processes is not None:
            memory.add_metric([matter.name], sum(map(resident_bytes, workspace.processes.process_ids.values())))
    yield documents
    yield memory
