"""Users: who may use the service, with hashed tokens and roles, in a JSON file.

The file maps names to roles and SHA-256 digests of tokens, as ``haybale add-user`` writes it::

    {"ada": {"role": "judge", "token": "sha256:…"}}

Tokens are made at random, with 256 bits, so that a plain digest cannot be reversed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from haybale.errors import FileFormatError, HaybaleError, InputError, UnknownNameError
from haybale.folders import locked, replace_json
from haybale.text_files import read_json

ROLES = ("judge", "admin")
LEAST = 16  # the smallest number of characters of a token that a person has chosen
_SHA256 = "sha256:"


@dataclass(frozen=True)
class User:
    """The user of a request.

    Parameters
    ----------
    name : str
        Empty where there are no users.
    role : {"judge", "admin"}
        Judges search, review and export; admins train and import, too.
    """

    name: str
    role: str


ANYBODY = User("", "admin")  # the user of all requests where there are no named users


class Users:
    """The users of a service by the digests of their tokens.

    Examples
    --------
    >>> users = Users({"ada": ("judge", digest_of("a token of Ada's"))})
    >>> users.find("a token of Ada's"), users.find("a guess")
    (User(name='ada', role='judge'), None)
    """

    def __init__(self, users: Mapping[str, tuple[str, str]]) -> None:
        self._users = {digest: User(name, role) for name, (role, digest) in users.items()}

    def find(self, token: str) -> User | None:
        """Return the user with a token; every digest is compared in constant time."""
        token_digest, token_user = digest_of(token), None
        for digest, user in self._users.items():
            if hmac.compare_digest(token_digest, digest):
                token_user = user
        return token_user

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted(user.name for user in self._users.values())


def only_token(token: str) -> Users:
    """Return the one nameless user who has a token; a short token raises InputError."""
    if len(token) < LEAST:
        raise InputError(f"--token must have at least {LEAST} characters, found {len(token)}; omit it to have one made")
    return Users({"": (ANYBODY.role, digest_of(token))})


def digest_of(token: str) -> str:
    """Return the digest of a token, which is what the file of users has."""
    return _SHA256 + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_users(path: Path) -> Users:
    """Read a file of users; a damaged one raises FileFormatError."""
    users = {}
    for name, about in read_json(path).items():
        role, digest = (about.get("role"), about.get("token")) if isinstance(about, dict) else (None, None)
        if role not in ROLES or not isinstance(digest, str) or not digest.startswith(_SHA256) or not name.strip():
            expected = f'{{"role": "judge" or "admin", "token": "{_SHA256}…"}}'
            raise FileFormatError(
                path, None, f"user {name!r:.100}: expected {expected}; write it with haybale add-user"
            )
        users[name] = role, digest
    if not users:
        raise FileFormatError(path, None, "expected a user, found {}; add one with haybale add-user")
    return Users(users)


def add_user(path: Path, name: str, role: str) -> str:
    """Add a user to a file, or give one a new token and role; return the token, which is kept nowhere.

    Several processes may do so at once. A new file is readable by its owner only; an existing one keeps its mode and
    owner.
    """
    if role not in ROLES:
        raise UnknownNameError("role", role, ROLES)
    if not name.strip() or not name.isprintable() or len(name) > 100:
        raise InputError(f"name must be 1 to 100 printable characters, found {name!r:.120}; choose another")
    token = secrets.token_urlsafe(32)
    target = Path(os.path.realpath(path))
    try:
        with locked(target.parent):
            users = read_json(target) if target.exists() else {}
            replace_json(target, {**users, name: {"role": role, "token": digest_of(token)}}, mode=0o600)
    except OSError as error:
        if isinstance(error, HaybaleError):
            raise
        why = error.strerror or str(error)
        raise InputError(
            f"{path}: the user cannot be written, and nothing was changed: {why}; give a file that can be written"
        ) from None
    return token
