"""The accounts of a service: its users with their rights, sessions and links, as administrators change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from haybale.errors import UnknownNameError
from haybale.service.request_errors import NotFoundError
from haybale.service.security import Access
from haybale.service.sessions import Session
from haybale.service.times import in_iso
from haybale.service.users import User
from haybale.service.users_file import UsersFile, add_user, change_user, remove_user, renew_token

_BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari"}
_SYSTEMS = {"Windows": "Windows", "Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Mac OS": "macOS"}
_SYSTEMS |= {"Linux": "Linux"}


@dataclass(frozen=True)
class Account:
    """A user of the service.

    Parameters
    ----------
    name : str
    right : str
        The right in matters that ``matters`` does not name.
    matters : dict of str to str
        Rights by matter.
    is_monitor : bool
        Whether the user may read metrics and the description of the interface without a right.
    has_token : bool
    n_sessions : int
        The number of browsers in which the user is logged in.
    last_seen : str or None
        When a session of the user was last used, in ISO 8601.
    """

    name: str
    right: str
    matters: dict[str, str]
    is_monitor: bool
    has_token: bool
    n_sessions: int
    last_seen: str | None


class Accounts:
    """The accounts of a service that has a file of users; NotFoundError is raised where it has none.

    Changes hold at once, and are written to the file. They raise what the functions of
    :mod:`haybale.service.users_file` raise, and NotFoundError for an unknown user.
    """

    def __init__(self, access: Access) -> None:
        if not isinstance(access.users, UsersFile):
            raise NotFoundError("this service has no file of users; start it with haybale serve --users FILE")
        self._file, self._sessions = access.users, access.sessions

    def all(self) -> list[Account]:
        """Return all users, sorted by name."""
        self._file.look()
        return [self._account(user) for _, user in sorted(self._file.by_name().items())]

    def get(self, name: str) -> Account:
        """Return a user."""
        return self._account(self._named(name))

    def add(self, user: User, has_token: bool = True) -> str | None:
        """Add a user, and return the token, if one is made."""
        token = add_user(self._file.path, user, has_token)
        self._file.look()
        return token

    def change(
        self,
        name: str,
        right: str | None = None,
        matters: Mapping[str, str | None] | None = None,
        is_monitor: bool | None = None,
    ) -> Account:
        """Change the rights of a user (:func:`~haybale.service.users_file.change_user`)."""
        self._named(name)
        change_user(self._file.path, name, right, matters, is_monitor)
        return self.get(name)

    def renew_token(self, name: str) -> str:
        """Give a user a new token, and return it; all sessions of the user end."""
        self._named(name)
        token = renew_token(self._file.path, name)
        self._sessions.end_of(name)
        self._file.look()
        return token

    def remove(self, name: str) -> None:
        """Remove a user; all sessions of the user end."""
        self._named(name)
        remove_user(self._file.path, name)
        self._file.look()
        self._sessions.end_of(name)

    def make_link(self, name: str, hours: float) -> tuple[str, str]:
        """Return the path of a link that logs a user in, once, and until when it does, in ISO 8601."""
        link, end = self._sessions.make_link(self._named(name), hours * 3600)
        return f"/login?link={link}", in_iso(end)

    def sessions(self, name: str) -> list[Session]:
        """Return the sessions of a user, the last used one first."""
        return self._sessions.of(self._named(name).name)

    def end_sessions(self, name: str, number: int | None = None) -> int:
        """End one session of a user, or all; return how many ended."""
        return self._sessions.end_of(self._named(name).name, number)

    def _named(self, name: str) -> User:
        self._file.look()
        user = self._file.by_name().get(name)
        if user is None:
            raise NotFoundError(str(UnknownNameError("user", name, self._file.by_name())))
        return user

    def _account(self, user: User) -> Account:
        sessions = self._sessions.of(user.name)
        seen = in_iso(sessions[0].seen) if sessions else None
        return Account(
            user.name, user.default_right, dict(user.matters), user.is_monitor, bool(user.digest), len(sessions), seen
        )


def browser_in_words(browser: str) -> str:
    """Return what people call a browser and its system, of what it says about itself.

    >>> browser_in_words("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
    'Firefox on Linux'
    >>> browser_in_words("curl/8.5.0")
    'curl/8.5.0'
    """
    name = next((name for part, name in _BROWSERS.items() if f"{part}/" in browser), None)
    system = next((name for part, name in _SYSTEMS.items() if part in browser), None)
    if name is None:
        return browser[:60] or "unknown"
    return name if system is None else f"{name} on {system}"
