"""Saved searches: a query with its filters and ranker under a name, and what is new among its hits since a last look.

The hits of a saved search are the first ``k`` documents that its ranker places for its text, among those that fulfil
its filters. A hit is *new* if its text was not in the engine at the last look, and *changed* if the engine had its id
then, with another text. A document that was there then is neither, also if it was moved to another id, if it fulfils
the filters only since, or if its rank has improved.

A look ends when a user says so: each user has looks of their own on the page, and a feed and mails have others.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from haybale.engine import Engine
from haybale.engine.earlier_documents import Novelty
from haybale.engine.reattaching import TextDigests
from haybale.errors import InputError
from haybale.parameters import Interval, check_parameters
from haybale.rankers import Ranker
from haybale.review.store_file import now
from haybale.search import SearchHit, searching
from haybale.service.logged_actions import LoggedActions
from haybale.service.matter_store import MatterFile
from haybale.service.ranker_on_documents import RankerOnDocuments
from haybale.service.request_errors import NotAllowedError, NotFoundError
from haybale.service.request_texts import paragraphs

MAX_HITS = 100  # hits of a saved search that are looked at
MAX_LISTED = 50  # documents that a feed lists
MAX_SEARCHES = 1000  # of one user
MAX_SEARCH_NAME = 200  # characters
_MAX_CACHED = 200  # searches whose hits are kept
_COUNTING_SECONDS = 3.0  # for the numbers of new hits of a list
_MAIL_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_SEARCH_COLUMNS = "id, name, owner, is_shared, query, time"


@dataclass(frozen=True)
class SavedQuery:
    """What a saved search looks for.

    Parameters
    ----------
    text : str
        Blank lines separate paragraphs.
    where : str, default ""
        An SQL condition on the metadata.
    chosen : mapping of str to list of str, default {}
        The chosen values of facets, and the two ends of ranges, by column.
    ranker : str
        The name of a ranker of the service.
    k : int, default 20
        How many documents are hits, at most 100.
    address : str, default ""
        The parameters of the search page's address.
    """

    text: str
    where: str = ""
    chosen: Mapping[str, list[str]] = field(default_factory=dict)
    ranker: str = ""
    k: int = 20
    address: str = ""


@dataclass(frozen=True)
class SavedSearch:
    """A saved search.

    Parameters
    ----------
    id : int
    name : str
    owner : str
        Who saved it.
    is_shared : bool
        Whether others see it.
    query : SavedQuery
    time : str
        When it was saved: ISO 8601, in UTC.
    """

    id: int
    name: str
    owner: str
    is_shared: bool
    query: SavedQuery
    time: str


@dataclass(frozen=True)
class MarkedHit:
    """A hit of a saved search, with a digest of its text, and whether the text is new since the last look."""

    hit: SearchHit
    text: str
    novelty: Novelty


@dataclass(frozen=True)
class SearchNews:
    """The hits of a saved search, compared with a last look.

    Parameters
    ----------
    hits : list of MarkedHit
    state : str
        The digest of the documents that were searched, by which the look is noted.
    since : str or None
        When the last look was; None if there was none, so that no hit is marked.
    is_certain : bool
        Whether the engine still has the documents of the last look. If not, as after a restored backup, hits are new
        if they were not hits at the last look.
    """

    hits: list[MarkedHit]
    state: str
    since: str | None
    is_certain: bool

    @property
    def new(self) -> list[MarkedHit]:
        """The hits that are new or changed."""
        return [hit for hit in self.hits if hit.novelty]


@dataclass(frozen=True)
class ListedSearch:
    """A saved search in a user's list.

    Parameters
    ----------
    search : SavedSearch
    since : str or None
        When the user looked last.
    n_new : int or None
        The number of new and changed hits; None without a last look, if there was no time to count, or if it fails.
    problem : str
        Why it cannot be searched; empty if it can.
    has_feed : bool
    mail : str or None
        The address to which new hits are mailed.
    """

    search: SavedSearch
    since: str | None
    n_new: int | None
    problem: str
    has_feed: bool
    mail: str | None


@dataclass(frozen=True)
class Watch:
    """How far somebody has seen the hits of a search.

    Parameters
    ----------
    id : int
    search : int
        The number of the saved search.
    user : str
    address : str or None
        Of mails; of a feed, the SHA-256 of its token.
    state : str
        The digest of the documents of the last look.
    texts : frozenset of str
        The digests of the texts of the hits at the last look.
    time : str
        When it was.
    """

    id: int
    search: int
    user: str
    address: str | None
    state: str
    texts: frozenset[str]
    time: str


@dataclass(frozen=True)
class Feed:
    """What a feed lists: its search, and documents that were new, with what is kept of each, the last one first."""

    search: SavedSearch
    user: str
    updated: str
    entries: list[dict[str, Any]]


class SavedSearches:
    """Saves searches, and says what is new among their hits. Several threads may use it.

    Parameters
    ----------
    file : MatterFile
    logged : LoggedActions
    ranker : callable
        Returns a ranker by its name; UnknownNameError for an unknown one.
    condition : callable
        Returns the SQL condition on documents with chosen values of facets.
    """

    def __init__(
        self,
        file: MatterFile,
        logged: LoggedActions,
        ranker: Callable[[str], Ranker],
        condition: Callable[[Mapping[str, list[str]]], str | None],
    ) -> None:
        self._file, self._logged, self._ranker, self._condition = file, logged, ranker, condition
        self._lock = threading.Lock()
        self._results: OrderedDict[int, tuple[Engine, SavedQuery, Ranker, list[MarkedHit]]] = OrderedDict()

    # Searches.

    def save(self, query: SavedQuery, name: str, user: str, is_shared: bool = False) -> SavedSearch:
        """Save a search, whose hits the user has seen now.

        Raises
        ------
        InputError
            For a name that the user has given another search, a search that fails, or too many of them.
        """
        name = _checked_name(name)
        check_parameters("save", {"k": query.k}, {"k": [Interval(Integral, 1, MAX_HITS, closed="both")]})
        news = self._news(query, None, None)
        store = self._file.store
        with store.writing() as connection:
            n = connection.execute("SELECT count(*) FROM searches WHERE owner = ?", [user]).fetchone()[0]
            if n >= MAX_SEARCHES:
                raise InputError(f"expected at most {MAX_SEARCHES:,} saved searches, found {n:,}; delete some")
            _check_free(connection, user, name)
            insert = "INSERT INTO searches (name, owner, is_shared, query, time) VALUES (?, ?, ?, ?, ?)"
            values = [name, user, is_shared, json.dumps(asdict(query)), now()]
            number = int(connection.execute(insert, values).lastrowid or 0)
        self._look(number, user, "page", news)
        return self.get(number, user)

    def get(self, number: int, user: str) -> SavedSearch:
        """Return a search that a user may see; NotFoundError for others, and for unknown numbers."""
        select = f"SELECT {_SEARCH_COLUMNS} FROM searches WHERE id = ?"
        rows = self._file.store.rows(select, number) if self._file.exists else []
        search = _saved_search(rows[0]) if rows else None
        if search is None or not (search.is_shared or search.owner == user):
            raise NotFoundError(f"expected the number of a saved search, found {number}; see the list of searches")
        return search

    def change(
        self, number: int, user: str, name: str | None = None, is_shared: bool | None = None, is_admin: bool = False
    ) -> SavedSearch:
        """Rename a search, or say whether others see it; its owner and administrators may."""
        search = self._changeable(number, user, is_admin)
        name = search.name if name is None else _checked_name(name)
        with self._file.store.writing() as connection:
            if name != search.name:
                _check_free(connection, search.owner, name)
            shared = search.is_shared if is_shared is None else is_shared
            update = "UPDATE searches SET name = ?, is_shared = ? WHERE id = ?"
            connection.execute(update, [name, shared, number])
        return self.get(number, search.owner)

    def delete(self, number: int, user: str, is_admin: bool = False) -> None:
        """Delete a search with its feeds and mails; its owner and administrators may."""
        self._changeable(number, user, is_admin)
        with self._file.store.writing() as connection:
            connection.execute("DELETE FROM searches WHERE id = ?", [number])

    def _changeable(self, number: int, user: str, is_admin: bool) -> SavedSearch:
        search = self.get(number, user)
        if search.owner != user and not is_admin:
            raise NotAllowedError(
                f"expected a search that {user!r:.100} saved, found one of {search.owner!r:.100}; ask its owner"
            )
        return search

    def listed(self, user: str) -> list[ListedSearch]:
        """Return the searches that a user may see, by name, with the numbers of new hits as far as time allows."""
        if not self._file.exists:
            return []
        select = f"SELECT {_SEARCH_COLUMNS} FROM searches WHERE owner = ? OR is_shared ORDER BY name, id"
        searches = [_saved_search(row) for row in self._file.store.rows(select, user)]
        kinds = ("page", "feed", "mail")
        watches = {(watch.search, kind): watch for kind in kinds for watch in self._watches(kind, user=user)}
        end, listed = time.monotonic() + _COUNTING_SECONDS, []
        for search in searches:
            watch, n_new, problem = watches.get((search.id, "page")), None, ""
            if watch is not None and time.monotonic() < end:
                try:
                    n_new = 0 if self._is_unchanged(watch) else len(self._news(search.query, search.id, watch).new)
                except InputError as error:
                    problem = str(error)
            mail = watches.get((search.id, "mail"))
            address = None if mail is None else mail.address
            since = None if watch is None else watch.time
            listed.append(ListedSearch(search, since, n_new, problem, (search.id, "feed") in watches, address))
        return listed

    # Looks.

    def news(self, number: int, user: str) -> SearchNews:
        """Return the hits of a search, and which are new since the user's last look."""
        saved, watch = self.get(number, user), self._watch(number, user, "page")
        news = self._news(saved.query, number, watch)
        query, doc_ids = saved.query, [marked.hit.doc_id for marked in news.hits]
        more = {"where": self.where(query), "k": query.k, "saved": number}
        self._logged.searched(query.text, doc_ids, query.ranker, [news.state], user, **more)
        return news

    def look(self, number: int, user: str, state: str | None = None) -> None:
        """Note that a user has seen the hits of a search, among the documents of :attr:`SearchNews.state`.

        Documents that were added since the page was made stay new.
        """
        search = self.get(number, user)
        news = self._news(search.query, number, None)
        if state is not None and state != news.state:
            if self._file.store.state(state) is None:
                raise InputError("state= must be that of the hits that were seen, found another one; load them again")
            news = SearchNews(news.hits, state, None, True)
        self._look(number, user, "page", news)

    def _look(self, number: int, user: str, kind: str, news: SearchNews, address: str | None = None) -> None:
        texts = json.dumps([marked.text for marked in news.hits])
        upsert = (
            "INSERT INTO watches (search, user, kind, address, state, texts, time) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (search, user, kind) DO UPDATE SET address = excluded.address, state = excluded.state, "
            "texts = excluded.texts, time = excluded.time"
        )
        with self._file.store.writing() as connection:
            connection.execute(upsert, [number, user, kind, address, news.state, texts, now()])

    # Feeds.

    def open_feed(self, number: int, user: str) -> str:
        """Return the token of a new feed, which lists what is new from now on; an earlier one of the user ends.

        The token is kept nowhere: the store has its SHA-256 only.
        """
        search, token = self.get(number, user), secrets.token_urlsafe(32)
        self.close_feed(number, user)
        self._look(number, user, "feed", self._news(search.query, number, None), _digest_of_token(token))
        return token

    def close_feed(self, number: int, user: str) -> None:
        """End the feed of a user."""
        self.get(number, user)
        self._forget(number, user, "feed")

    def feed(self, token: str, may_read: Callable[[str], bool] = lambda user: True) -> Feed:
        """Return what a feed lists, without documents that are gone by now, and note what is new.

        Parameters
        ----------
        token : str
        may_read : callable, optional
            Returns whether the user who opened the feed may still read the documents. Default: everybody may.

        Raises
        ------
        NotFoundError
            For an unknown token, if the user may no longer read, or if the search is private to another user now.
        """
        unknown = NotFoundError("expected the address of a feed, found none or one that has ended; open a new feed")
        watch = next(iter(self._watches("feed", address=_digest_of_token(token))), None)
        if watch is None or not may_read(watch.user):
            raise unknown
        try:
            search = self.get(watch.search, watch.user)
        except NotFoundError:
            raise unknown from None
        if not self._is_unchanged(watch):
            news = self._news(search.query, search.id, watch)
            self._note(watch, news)
            if news.new:
                self._log_mail(search, "feed", news, watch.user)
        select = "SELECT value, text, time FROM hits WHERE watch = ? ORDER BY id DESC LIMIT ?"
        rows = self._file.store.rows(select, watch.id, MAX_LISTED)
        kept = [{**json.loads(value), "digest": text, "time": noted} for value, text, noted in rows]
        numbers = self._file.engine.snapshot().whole.find_documents([entry["doc_id"] for entry in kept]).tolist()
        entries = [entry for entry, number in zip(kept, numbers, strict=True) if number >= 0]
        updated = max([entry["time"] for entry in entries], default=search.time)
        return Feed(search, watch.user, updated, entries)

    # Mails.

    def mail_to(self, number: int, user: str, address: str) -> None:
        """Let ``haybale alert`` mail what is new from now on to an address; InputError for one that cannot be one."""
        search, address = self.get(number, user), address.strip()
        if not _MAIL_ADDRESS.fullmatch(address) or len(address) > 254:
            raise InputError(f"address must be one such as ada@example.org, found {address!r:.100}; correct it")
        watch = self._watch(number, user, "mail")
        if watch is None:
            self._look(number, user, "mail", self._news(search.query, number, None), address)
            return
        with self._file.store.writing() as connection:  # what is not mailed yet stays new
            connection.execute("UPDATE watches SET address = ? WHERE id = ?", [address, watch.id])

    def mail_no_more(self, number: int, user: str) -> None:
        """End the mails to a user."""
        self.get(number, user)
        self._forget(number, user, "mail")

    def mail_watches(self) -> list[Watch]:
        """Return to whom new hits are mailed, in the order in which they asked."""
        return self._watches("mail")

    def to_mail(self, watch: Watch) -> tuple[SavedSearch, SearchNews]:
        """Return a search, with the hits that are new since the last mail and were never mailed.

        NotFoundError is raised if the user no longer sees the search.
        """
        search = self.get(watch.search, watch.user)
        if self._is_unchanged(watch):
            return search, SearchNews([], watch.state, watch.time, True)
        news = self._news(search.query, search.id, watch)
        mailed = {text for (text,) in self._file.store.rows("SELECT text FROM hits WHERE watch = ?", watch.id)}
        hits = [MarkedHit(one.hit, one.text, "" if one.text in mailed else one.novelty) for one in news.hits]
        return search, SearchNews(hits, news.state, news.since, news.is_certain)

    def note_mailed(self, watch: Watch, search: SavedSearch, news: SearchNews) -> None:
        """Note that a mail with the new hits was accepted; they are never mailed again."""
        self._note(watch, news)
        if news.new:
            self._log_mail(search, str(watch.address), news, watch.user)

    # What both need.

    def _note(self, watch: Watch, news: SearchNews) -> None:
        """Keep the new hits of a feed, or those that were mailed, and how far was looked, in one step."""
        texts = json.dumps([marked.text for marked in news.hits])
        with self._file.store.writing() as connection:
            if connection.execute("SELECT 1 FROM watches WHERE id = ?", [watch.id]).fetchone() is None:
                return  # it has ended meanwhile
            for marked in reversed(news.new):  # the best one is listed first
                value = json.dumps(_kept(marked), ensure_ascii=True)
                insert = "INSERT OR IGNORE INTO hits (watch, text, value, time) VALUES (?, ?, ?, ?)"
                connection.execute(insert, [watch.id, marked.text, value, now()])
            update = "UPDATE watches SET state = ?, texts = ?, time = ? WHERE id = ?"
            connection.execute(update, [news.state, texts, now(), watch.id])

    def _log_mail(self, search: SavedSearch, address: str, news: SearchNews, user: str) -> None:
        doc_ids = [marked.hit.doc_id for marked in news.new]
        self._logged.mailed(search.id, search.name, address, doc_ids, user)

    def _forget(self, number: int, user: str, kind: str) -> None:
        with self._file.store.writing() as connection:
            delete = "DELETE FROM watches WHERE search = ? AND user = ? AND kind = ?"
            connection.execute(delete, [number, user, kind])

    def _watches(self, kind: str, **chosen: Any) -> list[Watch]:
        """Return the watches of a kind, with chosen values of columns."""
        select = "SELECT id, search, user, address, state, texts, time FROM watches WHERE kind = ?"
        select += "".join(f" AND {column} = ?" for column in chosen) + " ORDER BY id"
        rows = self._file.store.rows(select, kind, *chosen.values()) if self._file.exists else []
        return [
            Watch(number, search, user, address, state, frozenset(json.loads(texts)), seen_at)
            for number, search, user, address, state, texts, seen_at in rows
        ]

    def watches(self, number: int, user: str) -> dict[str, Watch]:
        """Return how far a user has seen a search, on the ``page``, by a ``feed`` and by ``mail``, as far as asked."""
        kinds = {kind: self._watch(number, user, kind) for kind in ("page", "feed", "mail")}
        return {kind: watch for kind, watch in kinds.items() if watch is not None}

    def _watch(self, number: int, user: str, kind: str) -> Watch | None:
        return next(iter(self._watches(kind, user=user, search=number)), None)

    def _is_unchanged(self, watch: Watch) -> bool:
        """Return whether the engine has the documents of the last look, so that nothing can be new."""
        return self._file.states.state(self._file.engine.snapshot()).digest == watch.state

    def where(self, query: SavedQuery) -> str | None:
        """Return the condition of a query and its chosen values of facets, as one condition; None if all fit."""
        facets = self._condition(query.chosen) if query.chosen else None
        if query.where and facets:
            return f"({query.where}\n) and {facets}"
        return query.where or facets

    def _news(self, query: SavedQuery, number: int | None, watch: Watch | None) -> SearchNews:
        """Search for a query, and mark what is new since a look."""
        engine, store = self._file.engine.snapshot(), self._file.store
        state = store.keep_state(self._file.states.state(engine))
        hits = self._hits(query, number, engine)
        if watch is None:
            return SearchNews(hits, state, None, True)
        earlier = store.state(watch.state)
        since = None if earlier is None else self._file.states.since(engine, earlier)
        marked = []
        for hit in hits:
            if since is not None and since.is_certain:
                novelty = since.novelty(hit.hit.doc_id)
            else:
                novelty = "" if hit.text in watch.texts else "new"
            marked.append(MarkedHit(hit.hit, hit.text, novelty))
        return SearchNews(marked, state, watch.time, since is not None and since.is_certain)

    def _hits(self, query: SavedQuery, number: int | None, engine: Engine) -> list[MarkedHit]:
        """Return the hits of a query on a snapshot; those of a saved search are kept until the documents change."""
        ranker = self._ranker(query.ranker)
        with self._lock:
            cached = self._results.get(number) if number is not None else None
            if cached is not None and cached[0] is engine and cached[1] == query and cached[2] is ranker:
                return cached[3]
        fixed = RankerOnDocuments(ranker, engine)
        results = searching.search(fixed, paragraphs(query.text), query.k, self.where(query))
        texts = TextDigests(engine.whole).of([hit.doc_id for hit in results])
        hits = [MarkedHit(hit, texts[hit.doc_id] or "", "") for hit in results]
        if number is not None:
            with self._lock:
                self._results[number] = engine, query, ranker, hits
                self._results.move_to_end(number)
                while len(self._results) > _MAX_CACHED:
                    self._results.popitem(last=False)
        return hits


def _saved_search(row: tuple[Any, ...]) -> SavedSearch:
    number, name, owner, is_shared, query, saved_at = row
    return SavedSearch(number, name, owner, bool(is_shared), SavedQuery(**json.loads(query)), saved_at)


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or not name.isprintable() or len(name) > MAX_SEARCH_NAME:
        raise InputError(
            f"the name of a search must be 1 to {MAX_SEARCH_NAME} printable characters, found {name!r:.220}; shorten it"
        )
    return name


def _check_free(connection: sqlite3.Connection, owner: str, name: str) -> None:
    if connection.execute("SELECT 1 FROM searches WHERE owner = ? AND name = ?", [owner, name]).fetchone():
        raise InputError(f"the name of a search must be new, found {name!r}, which is there already; choose another")


def has_feed(path: Path, token: str) -> bool:
    """Return whether a file of saved searches has a feed with a token."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            select = "SELECT 1 FROM watches WHERE kind = 'feed' AND address = ?"
            return connection.execute(select, [_digest_of_token(token)]).fetchone() is not None
    except sqlite3.Error:  # there is no such file
        return False


def _digest_of_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _kept(marked: MarkedHit) -> dict[str, Any]:
    """Return what feeds keep of a hit."""
    hit = marked.hit
    snippet = "".join(text for text, _ in hit.snippets[0].excerpt()) if hit.snippets else ""
    where_in_file = hit.snippets[0].place if hit.snippets else ""
    return {
        "doc_id": hit.doc_id,
        "title": hit.title,
        "novelty": marked.novelty,
        "rank": hit.rank,
        "place": where_in_file,
        "snippet": snippet,
    }
