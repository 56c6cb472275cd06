"""Divide work on an engine into tasks, and open the engine by its path in the processes that run them."""

from __future__ import annotations

import socket
from functools import lru_cache

from haybale.cluster import shares_memory
from haybale.engine.engine import Engine
from haybale.errors import FileFormatError, StoreError
from haybale.kept_results import kept_results
from haybale.retrieval.object_storage import is_address

Address = tuple[str, str]  # Engine.address


def task_address(engine: Engine) -> tuple[bool, Address | None]:
    """Return whether work on an engine is divided into tasks, and the address by which other processes open it.

    It is divided where tasks run in other processes and these can open the engine; the address is None otherwise.
    Within :func:`~haybale.kept_results.resumable`, work on an engine in a folder is divided in any case.
    """
    address = None if shares_memory() else engine.address
    return address is not None or (kept_results() is not None and engine.documents_digest is not None), address


@lru_cache(maxsize=2)
def opened_engine(folder: str, documents: str) -> Engine:
    """Open the engine in a folder, once in each process.

    The parameters are its :attr:`~haybale.Engine.address` where the tasks were made. Raises
    :class:`~haybale.StoreError` if the folder is missing or has other documents. Errors of an address on object storage
    stay as they are: they say what every worker needs.
    """
    host = socket.gethostname()
    try:
        engine = Engine.open(folder)
    except (OSError, FileFormatError) as error:
        if is_address(folder):
            raise
        raise StoreError(
            f"{error} (on {host}); use shared storage: every worker must reach the engine there"
        ) from error
    if engine.documents_digest != documents:
        raise StoreError(
            f"{folder}: on {host} this engine has other documents; use shared storage, and do not change the engine "
            "while its tasks run"
        )
    return engine
