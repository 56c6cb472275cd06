"""Names of the package and where they are defined. __init__.py imports each when it is first used."""

from .facets import Facet as Facet
from .facets import condition as condition
from .log_chain import LogHead as LogHead
from .log_chain import check_lines as check_lines
from .matter_backup import MatterBackup as MatterBackup
from .matter_backup import backup_matter as backup_matter
from .matter_log import MatterLog as MatterLog
from .matter_restore import RestoredMatter as RestoredMatter
from .matter_restore import restore_matter as restore_matter
from .opened_document import OpenedDocument as OpenedDocument
from .saved_searches import SavedQuery as SavedQuery
from .saved_searches import SavedSearches as SavedSearches
from .topic_summary import TopicSummary as TopicSummary
from .trainings import ModelTraining as ModelTraining
from .web_application import create_app as create_app
from .workspace import Workspace as Workspace
