"""The versions of haybale and of the packages that results depend on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

__version__ = "0.2.0"


@cache  # reading metadata takes milliseconds
def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None if it is not installed.

    haybale's own version is known without metadata, because a clone of the repository need not be installed.

    >>> version_of("no-such-distribution") is None
    True
    """
    from importlib.metadata import PackageNotFoundError, version  # here, because ``import haybale`` should be fast

    if distribution == "haybale":
        return __version__
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed.

    >>> list(versions_of(["numpy", "no-such-distribution"]))
    ['numpy']
    """
    versions = {distribution: version_of(distribution) for distribution in distributions}
    return {distribution: number for distribution, number in versions.items() if number is not None}
