"""Reports about runs: self-contained HTML pages with measures, curves, texts and pictures."""

from haybale.reports.sources import Source, load
from haybale.reports.study import Study
from haybale.reports.write import write_report

__all__ = ["Source", "Study", "load", "write_report"]
__dir__ = __all__.copy  # dir() lists the public names only
