"""The file of users: it is read again when it has changed, and several processes may change it at once.

It maps names to rights and SHA-256 digests of tokens, as ``haybale add-user`` writes it::

    {"ada": {"right": "none", "matters": {"smith": "judge", "jones": "read"}, "token": "sha256:…"}}

``"monitor": true`` lets a user read metrics, and a user without a token logs in by a link or through a proxy. Files of
earlier versions have a ``role``, ``"judge"`` or ``"admin"``, in place of the right; they are read, too.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from haybale.errors import FileFormatError, HaybaleError, InputError, UnknownNameError
from haybale.folders import locked, replace_json
from haybale.service.roles import ADMINISTER, JUDGE, RIGHTS
from haybale.service.users import SHA256, User, Users, digest_of
from haybale.text_files import read_json

MAX_NAME = 100  # characters of a user's name
MAX_MATTER = 255  # characters of the name of a folder
LOOK_SECONDS = 1.0  # between two looks whether the file has changed
_RIGHTS_BY_ROLE = {"judge": JUDGE, "admin": ADMINISTER}  # the roles of earlier versions
_EXPECTED = f'{{"right": "none", "read", "judge" or "administer", "matters": {{}}, "token": "{SHA256}…"}}'
_DIGEST = re.compile(f"{SHA256}[0-9a-f]{{64}}")
_LOGGER = logging.getLogger("haybale.service")


class UsersFile(Users):
    """The users in a file. Several threads may ask for them.

    Parameters
    ----------
    path : Path
        A damaged file raises FileFormatError. If it is damaged or removed later, the users stay as they are, and an
        error is logged.
    clock : callable, default time.monotonic
        Returns the time in seconds. The file is looked at once a second, at most.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        self._version, self._looked = _version_of(path), clock()
        super().__init__(read_users(path))

    def by_name(self) -> Mapping[str, User]:
        """Return the users by name, as the file has them."""
        with self._lock:
            if self._clock() - self._looked >= LOOK_SECONDS:
                self._look()
            return self._by_name

    def look(self) -> None:
        """Read the file again if it has changed, at once."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        self._looked, version = self._clock(), _version_of(self.path)
        if version == self._version:
            return
        self._version = version  # before the file is read: a change meanwhile is read at the next look
        try:
            self._by_name = {user.name: user for user in read_users(self.path)}
        except (HaybaleError, OSError) as error:
            _LOGGER.error("the file of users cannot be read; the users of before stay: %s", error)


def read_users(path: Path) -> list[User]:
    """Read a file of users; a damaged one raises FileFormatError."""
    return [_user_of(path, name, entry) for name, entry in read_json(path).items()]


def add_user(path: Path, user: User, has_token: bool = True) -> str | None:
    """Add a user to a file, which is made if it does not exist; return the token, which is kept nowhere.

    A new file is readable by its owner only; an existing one keeps its mode and owner.

    Raises
    ------
    InputError
        For a user of this name that is there, a name that is no name, or a file that cannot be written.
    UnknownNameError
        For an unknown right.
    """
    _check_rights(user)
    is_name = bool(user.name.strip()) and user.name.isprintable() and len(user.name) <= MAX_NAME
    if not is_name or "/" in user.name or user.name in (".", ".."):  # names are in addresses
        raise InputError(
            f"the name of a user must be 1 to {MAX_NAME} printable characters without a slash, found "
            f"{user.name!r:.120}; choose another"
        )
    with _changing(path) as users:
        if user.name in users:
            raise InputError(f"{user.name!r} is a user already; use haybale change-user, or give another name")
        token = secrets.token_urlsafe(32) if has_token else None
        users[user.name] = replace(user, digest="" if token is None else digest_of(token))
    return token


def change_user(
    path: Path,
    name: str,
    right: str | None = None,
    matters: Mapping[str, str | None] | None = None,
    is_monitor: bool | None = None,
) -> User:
    """Change the rights of a user in a file, and return the user.

    Parameters
    ----------
    path : Path
    name : str
    right : str, optional
        The default right. Default: as it is.
    matters : mapping of str to str or None, optional
        Rights by matter. Other matters stay as they are; None takes a matter out, so that the default right holds.
    is_monitor : bool, optional
        Whether the user may read metrics without a right. Default: as it is.

    Raises
    ------
    UnknownNameError
        For an unknown user or right.
    InputError
        If nobody would administer the service afterwards, or the file cannot be written.
    """
    with _changing(path) as users:
        user = _named(users, name)
        merged = {**user.matters, **(matters or {})}
        kept = {matter: matter_right for matter, matter_right in merged.items() if matter_right is not None}
        monitors = user.is_monitor if is_monitor is None else is_monitor
        users[name] = replace(user, default_right=right or user.default_right, matters=kept, is_monitor=monitors)
        _check_rights(users[name])
        return users[name]


def renew_token(path: Path, name: str) -> str:
    """Give a user in a file a new token, and return it; the old one, and sessions that it has opened, end."""
    token = secrets.token_urlsafe(32)
    with _changing(path) as users:
        users[name] = replace(_named(users, name), digest=digest_of(token))
    return token


def remove_user(path: Path, name: str) -> None:
    """Remove a user from a file; UnknownNameError and InputError are raised as by :func:`change_user`."""
    with _changing(path) as users:
        del users[_named(users, name).name]


def rights_by_matter(texts: Sequence[str]) -> dict[str, str]:
    """Return rights by matter, of texts such as ``"smith=judge"``.

    >>> rights_by_matter(["smith=judge", "jones=read"])
    {'smith': 'judge', 'jones': 'read'}
    """
    rights = {}
    for text in texts:
        matter, equals, right = text.rpartition("=")
        if not equals:
            raise InputError(f"expected MATTER=RIGHT, such as smith=read, found {text!r}; correct it")
        rights[matter] = right
    return rights


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, User]]:
    """Yield the users of a file by name, and write them at the end, as no other process can meanwhile."""
    target = Path(os.path.realpath(path))
    try:
        with locked(target.parent):
            before = {user.name: user for user in read_users(target)} if target.exists() else {}
            users = dict(before)
            yield users
            if any(map(_administers, before.values())) and not any(map(_administers, users.values())):
                raise InputError(
                    "expected an administrator who stays, found none after this change; give another user the right "
                    "'administer' first"
                )
            replace_json(target, {name: _entry_of(user) for name, user in users.items()}, mode=0o600)
    except OSError as error:
        if isinstance(error, HaybaleError):
            raise
        why = error.strerror or str(error)
        raise InputError(
            f"{path}: the users cannot be written, and nothing was changed: {why}; give a file that can be written"
        ) from None


def _administers(user: User) -> bool:
    return user.is_administrator


def _named(users: Mapping[str, User], name: str) -> User:
    if name not in users:
        raise UnknownNameError("user", name, users)
    return users[name]


def _check_rights(user: User) -> None:
    for matter in user.matters:
        if not matter.strip() or not matter.isprintable() or len(matter) > MAX_MATTER or "/" in matter:
            raise InputError(
                f"a matter must be the name of an engine's folder, without the path to it, found {matter!r:.300}; "
                "correct it"
            )
    for right in (user.default_right, *user.matters.values()):
        if right not in RIGHTS:
            raise UnknownNameError("right", right, RIGHTS)


def _user_of(path: Path, name: str, entry: Any) -> User:
    """Return the user of an entry of a file; a wrong one raises FileFormatError."""
    values = entry if isinstance(entry, dict) else {}
    right = values.get("right", _RIGHTS_BY_ROLE.get(str(values.get("role"))))
    matters, digest, is_monitor = values.get("matters", {}), values.get("token") or "", values.get("monitor", False)
    has_matters = isinstance(matters, dict) and all(value in RIGHTS for value in matters.values())
    has_digest = isinstance(digest, str) and (not digest or _DIGEST.fullmatch(digest) is not None)
    if right not in RIGHTS or not has_matters or not has_digest or not isinstance(is_monitor, bool) or not name.strip():
        raise FileFormatError(
            path, None, f"user {name!r:.100}: expected {_EXPECTED}; write it with haybale add-user or change-user"
        )
    return User(name, right, matters, is_monitor, digest)


def _entry_of(user: User) -> dict[str, Any]:
    entry: dict[str, Any] = {"right": user.default_right}
    entry |= {"matters": dict(user.matters)} if user.matters else {}
    entry |= {"monitor": True} if user.is_monitor else {}
    return entry | ({"token": user.digest} if user.digest else {})


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what differs after a file was written again; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
