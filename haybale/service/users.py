"""Users: who may use the service, with the digests of their tokens, and what they may do in which matter."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from haybale.errors import InputError
from haybale.service.roles import ADMINISTER

MIN_TOKEN = 16  # characters of a token that a person has chosen
SHA256 = "sha256:"  # the beginning of a digest


@dataclass(frozen=True)
class User:
    """A user, and the matter in which the user asks for something.

    Parameters
    ----------
    name : str
        Empty where there are no named users.
    default_right : {"none", "read", "judge", "administer"}
        The right in all matters that ``matters`` does not name.
    matters : mapping of str to str
        The rights by matter, which is the name of an engine's folder.
    is_monitor : bool, default False
        Whether the user may read metrics and the description of the interface, without any right.
    digest : str, default ""
        That of the token (:func:`digest_of`). Empty: no token is this user's.
    matter : str, optional
        The matter that a request is about. Default: none yet, so that the default right holds.

    Examples
    --------
    >>> user = User("ada", "none", {"smith": "judge"})
    >>> user.right, user.within("smith").right, user.within("jones").right
    ('none', 'judge', 'none')
    """

    name: str
    default_right: str
    matters: Mapping[str, str] = field(default_factory=dict)
    is_monitor: bool = False
    digest: str = field(default="", repr=False)
    matter: str | None = None

    @property
    def right(self) -> str:
        """The right that holds where the user asks."""
        return self.default_right if self.matter is None else self.right_in(self.matter)

    @property
    def is_administrator(self) -> bool:
        """Whether the user administers the whole service: its users, and matters that are not named."""
        return self.default_right == ADMINISTER

    def right_in(self, matter: str) -> str:
        """Return the right in a matter."""
        return self.matters.get(matter, self.default_right)

    def within(self, matter: str | None) -> User:
        """Return the user as one who asks about a matter."""
        return replace(self, matter=matter)


ANYBODY = User("", ADMINISTER)  # the user of all requests where there are no named users


class Users:
    """The users of a service, by name and by token.

    Examples
    --------
    >>> users = Users([User("ada", "judge", digest=digest_of("a token of Ada's"))])
    >>> users.find("a token of Ada's").name, users.find("a guess")
    ('ada', None)
    """

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._by_name = {user.name: user for user in users}

    def by_name(self) -> Mapping[str, User]:
        """Return the users by name."""
        return self._by_name

    def find(self, token: str) -> User | None:
        """Return the user with a token; every digest is compared in constant time."""
        token_digest, token_user = digest_of(token), None
        for user in self.by_name().values():
            if hmac.compare_digest(token_digest, user.digest):
                token_user = user
        return token_user


def only_token(token: str) -> Users:
    """Return the one nameless user who has a token; a short token raises InputError."""
    if len(token) < MIN_TOKEN:
        raise InputError(
            f"--token must have at least {MIN_TOKEN} characters, found {len(token)}; omit it to have one made"
        )
    return Users([replace(ANYBODY, digest=digest_of(token))])


def digest_of(token: str) -> str:
    """Return the digest of a token, which is what the file of users has.

    Tokens are made at random, with 256 bits, so that a plain digest cannot be reversed.
    """
    return SHA256 + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
