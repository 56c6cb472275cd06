"""Names of the package and where they are defined. __init__.py imports each when it is first used."""

from .sources import Source as Source
from .sources import load as load
from .study import Study as Study
from .write import write_report as write_report
