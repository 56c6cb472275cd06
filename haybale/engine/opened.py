"""Open engines by path in the processes that run tasks."""

from __future__ import annotations

import socket
from functools import lru_cache

from haybale.engine.engine import Engine
from haybale.errors import FileFormatError, StoreError


@lru_cache(maxsize=2)
def opened_engine(folder: str, documents: str) -> Engine:
    """Open the engine in a folder, once in each process.

    The parameters are its :attr:`~haybale.Engine.address` where the tasks were made. Raises
    :class:`~haybale.StoreError` if the folder is missing or has other documents.
    """
    host = socket.gethostname()
    try:
        engine = Engine.open(folder)
    except (OSError, FileFormatError) as error:
        raise StoreError(
            f"{error} (on {host}); use shared storage: every worker must reach the engine there"
        ) from error
    if engine.documents_digest != documents:
        raise StoreError(
            f"{folder}: on {host} this engine has other documents; use shared storage, and do not change the engine "
            "while its tasks run"
        )
    return engine
