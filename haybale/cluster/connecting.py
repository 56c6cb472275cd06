"""A Dask cluster, connected: :func:`on_cluster`."""

from __future__ import annotations

import logging
import platform
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from joblib import parallel_config

from haybale.cluster.spreading import dask_errors, first_line, spread
from haybale.errors import ClusterError
from haybale.extras import require

__all__ = ["on_cluster", "spread"]

_PYTHON = tuple(platform.python_version_tuple()[:2])  # what is pickled may differ between these
_AGREEING = ("haybale", "numpy", "scipy", "numba")  # a result may depend on them
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")


@contextmanager
def on_cluster(address: str, *, timeout: float = 10.0) -> Iterator[Any]:
    """Let joblib, and with it haybale, work on the Dask cluster whose scheduler is at ``address``.

    ``timeout``: seconds in which the scheduler must answer and a worker be there. Yields the
    ``distributed.Client``. Errors: :class:`ClusterError` where nothing answers, where there is no worker, where
    workers or the scheduler have another version of Python, haybale, NumPy, SciPy or Numba or lack one of them, and
    where the cluster goes away; :class:`MissingExtraError` without distributed.
    """
    distributed = require("distributed", "dask")
    _check_address(address, timeout)
    with _quiet():
        try:
            client = distributed.Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {first_line(error)}") from error
        try:
            with dask_errors(address, "starting"):
                _check_workers(client, address, timeout)
            with parallel_config(backend="dask", client=client), dask_errors(address, "working"):
                yield client
        finally:
            with suppress(Exception):  # a scheduler that is gone need not be told
                client.close(timeout=2)


def _check_address(address: str, timeout: float) -> None:
    """Knock at the port: a client of Dask's would try for all the time it has, and hold up the end of the process."""
    addressing = require("distributed.comm.addressing", "dask")
    try:
        scheme, place = addressing.parse_address(address)
        if scheme in ("tls", "wss"):  # without certificates a client fails, and holds up the end for longer
            security = require("distributed.security", "dask").Security()
            if security.get_connection_args("client")["ssl_context"] is None:
                raise ValueError("TLS needs certificates: distributed.comm.tls in Dask's configuration names none")
        if scheme in ("tcp", "tls", "ws", "wss"):
            host, port = addressing.parse_host_port(place.partition("/")[0])
            socket.create_connection((host, port), timeout).close()
        elif scheme != "ucx":
            raise ValueError(f"unknown scheme {scheme!r}; expected an address such as tcp://host:8786")
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}: {first_line(error)}") from error


def _check_workers(client: Any, address: str, timeout: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterError(f"{address}: the cluster has no worker; start some: dask worker {address}") from None
    for who, theirs in _everywhere(client, platform.python_version_tuple):
        if not isinstance(theirs, BaseException) and tuple(theirs[:2]) != _PYTHON:
            raise ClusterError(f"{address}: {who} has Python {'.'.join(theirs)}, here it is {'.'.join(_PYTHON)}")
    for package in _AGREEING:
        ours = version(package)
        for who, theirs in _everywhere(client, version, package):
            if isinstance(theirs, PackageNotFoundError):
                raise ClusterError(f"{address}: {who} has no {package}; install {package} {ours} there")
            if isinstance(theirs, BaseException):
                raise ClusterError(f"{address}: {who}: {first_line(theirs)}")
            if theirs != ours:
                raise ClusterError(f"{address}: {who} has {package} {theirs}, here it is {ours}")


def _everywhere(client: Any, function: Callable[..., Any], *arguments: Any) -> Iterator[tuple[str, Any]]:
    """What a function gives on each worker and on the scheduler, which unpacks what is sent to the workers.

    It is one of the standard library: who has no haybale could not load one of ours.
    """
    for worker, found in client.run(function, *arguments, on_error="return").items():
        yield f"worker {worker}", found
    yield "the scheduler", _outcome(client.run_on_scheduler, function, *arguments)


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error


_quiet_lock = threading.Lock()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without distributed's log on stderr: what matters is raised."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    with _quiet_lock:
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        with _quiet_lock:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
