"""The workspace of a team: everything that the pages and the REST interface do, without HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests
from haybale.errors import HaybaleError, InputError, UnknownNameError
from haybale.parameters import COUNT, FROM_0, check_parameters
from haybale.review import JudgementStore, Progress, Review, ReviewDocument, Topic, TopicAudit
from haybale.review.engine_of_judgements import bind
from haybale.review.exports import query_id as exported_id
from haybale.review.judgement_store import Judgement, check_grade
from haybale.review.topic_ranking import text_digest
from haybale.search import SearchResults, Snippet
from haybale.search.explanation import Explanation
from haybale.search.searching import explain_hit, search, title_of
from haybale.service.document_files import DocumentFiles
from haybale.service.facets import Facet, condition, facets_of
from haybale.service.long_queries import LongQueries
from haybale.service.open_reviews import OpenReviews
from haybale.service.opened_document import OpenedDocument, open_document
from haybale.service.request_errors import NotFoundError, check_document
from haybale.service.request_texts import check_length, paragraphs
from haybale.service.search_processes import SearchProcesses
from haybale.service.topic_search import TopicSearch
from haybale.service.topic_summary import TopicRows, TopicSummary
from haybale.service.trainings import ModelTraining, Trainings

if TYPE_CHECKING:
    import pandas as pd

    from haybale.rankers import Ranker

_LOGGER = logging.getLogger("haybale.service")

MAX_RESULTS = 1000  # offset + k of a search
_OFFER_SECONDS = 600.0  # for which a document that one judge got is not proposed to others
_LAST_OFFER_SECONDS = 120.0  # the same, if nothing else is left to judge


class Workspace:
    """An engine, its rankers and a store of judgements, which several people use at once.

    Several threads may call all methods. Documents that other processes add to the engine's folder are found after
    :meth:`refresh`, and proposed by reviews after :meth:`prepare_reviews`.

    Parameters
    ----------
    engine : Engine
    rankers : mapping of str to Ranker
        Fitted rankers by the names under which they are chosen. The first is the default.
    judgements : JudgementStore
        The store. The caller closes it. StoreError is raised if it has judgements of another engine.
    models : str or Path, optional
        The folder of trainings. Default: beside the store, ``judgements-models`` for ``judgements.sqlite``. Without a
        file of judgements or a folder of the engine, nothing can be trained.
    processes : int, default 0
        Searches run in so many processes after :meth:`start_processes`, if the engine is in a folder; with 0, in
        threads of this process. A process takes the memory of an open engine with its rankers.
    clock : callable, default time.monotonic
        Returns the time in seconds, by which documents that a judge sees are held from others.

    Examples
    --------
    >>> from haybale import parse
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, JudgementStore())
    >>> [hit.doc_id for hit in workspace.search("Which animals purr?")]
    ['b']
    >>> topic = workspace.create_topic("Which animals purr?")
    >>> [document.doc_id for document in workspace.next(topic.id, judge="Ada")]
    ['b']
    >>> workspace.judge(topic.id, "b", 1, judge="Ada")
    >>> workspace.topic(topic.id).n_relevant
    1
    """

    def __init__(
        self,
        engine: Engine,
        rankers: Mapping[str, Ranker],
        judgements: JudgementStore,
        models: str | Path | None = None,
        processes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_parameters("Workspace", {"processes": processes}, {"processes": FROM_0})
        if not rankers:
            raise InputError("a workspace needs a ranker, found none; give rankers={'bm25': parse('bm25').fit(engine)}")
        for ranker in rankers.values():
            ranker._check_fitted()
            ranker._check_answers(None)
        bind(judgements, engine)
        self.engine, self.store = engine, judgements
        self.files = DocumentFiles(engine)
        self._rankers, self._default = dict(rankers), next(iter(rankers))
        self._lock = threading.RLock()
        self._rows: dict[int, TopicRows] = {}
        self._reviews = OpenReviews(engine, judgements)
        self._creating = threading.Lock()
        self._proposing: dict[int, threading.Lock] = {}
        self._clock = clock
        self._offered: dict[int, dict[str, _Offer]] = {}  # by topic and document
        self._facets: tuple[Engine, list[Facet]] | None = None
        self._digests: tuple[Engine, TextDigests] | None = None
        beside = None if judgements.path is None else judgements.path.with_name(f"{judgements.path.name}.queries")
        self.long_queries = LongQueries(beside)
        self._trainings: Trainings | None = None
        if engine.folder is not None and judgements.path is not None:
            path = judgements.path
            folder = path.with_name(f"{path.stem}-models") if models is None else Path(models)
            self._trainings = Trainings(folder, engine, path)
        self.processes = (
            SearchProcesses(engine, rankers, processes) if processes and engine.folder is not None else None
        )
        if self._trainings is not None:
            self._take_over_accepted()

    # Search.

    @property
    def rankers(self) -> list[str]:
        """The names of the rankers, the default first."""
        with self._lock:
            return [self._default, *(name for name in self._rankers if name != self._default)]

    def ranker(self, name: str | None = None) -> Ranker:
        """Return a ranker by its name, or the default; an unknown name raises UnknownNameError."""
        with self._lock:
            return self._rankers[self._chosen(name)]

    def _chosen(self, name: str | None) -> str:
        with self._lock:
            if name is not None and name not in self._rankers:
                raise UnknownNameError("ranker", name, self._rankers)
            return name or self._default

    def search(
        self,
        text: str,
        k: int = 10,
        where: str | None = None,
        ranker: str | None = None,
        offset: int = 0,
        topic: int | None = None,
        together: str | None = None,
    ) -> SearchResults:
        """Return the best documents for a text, without the first ``offset`` ones.

        The text is that of :meth:`haybale.Ranker.search`; paragraphs that blank lines separate are those of a long
        query.

        Parameters
        ----------
        text : str
        k : int, default 10
        where : str, optional
            An SQL condition on the metadata.
        ranker : str, optional
            The name of a ranker. Default: the one of the search page.
        offset : int, default 0
        topic : int, optional
            Fuse the ranking with the order of this topic's review, which has learned from the topic's judgements.
        together : str, optional
            Return documents with one value of this column after each other, as :meth:`haybale.Ranker.search` does;
            ``k`` and ``offset`` are numbers of groups then.

        Raises
        ------
        InputError
            For an empty or too long text, a wrong condition, or more than 1,000 results.
        """
        check_parameters("search", {"k": k, "offset": offset}, {"k": COUNT, "offset": FROM_0})
        if offset + k > MAX_RESULTS:
            raise InputError(f"offset + k must be at most {MAX_RESULTS:,}, found {offset + k:,}; narrow the search")
        parts, results = paragraphs(text), None
        if self.processes is not None and topic is None:
            results = self.processes.search(self._chosen(ranker), parts, k, where, offset, together)
        if results is None:
            results = search(self._searched(ranker, topic), parts, k, where, offset, together)
        return results

    def explain(
        self,
        text: str,
        doc_id: str,
        where: str | None = None,
        ranker: str | None = None,
        topic: int | None = None,
    ) -> tuple[Explanation, list[Snippet]]:
        """Explain the score that a document has in :meth:`search`, and return its best passages."""
        check_document(self.engine, doc_id)
        return explain_hit(self._searched(ranker, topic), paragraphs(text), doc_id, where)

    def _searched(self, ranker: str | None, topic: int | None) -> Ranker | TopicSearch:
        chosen = self.ranker(ranker)
        return chosen if topic is None else TopicSearch(chosen, *self._review(topic).scores())

    def document(
        self,
        doc_id: str,
        text: str | None = None,
        where: str | None = None,
        ranker: str | None = None,
        offset: int = 0,
        limit: int = 200,
    ) -> OpenedDocument:
        """Return a document with its passages, and what a query matches in them.

        Parameters
        ----------
        doc_id : str
        text, where, ranker : str, optional
            The search that found the document. Default: none.
        offset, limit : int
            The first passage, default 0, and the largest number of passages, default 200.
        """
        check_parameters("document", {"offset": offset, "limit": limit}, {"offset": FROM_0, "limit": COUNT})
        check_document(self.engine, doc_id)
        snapshot = self.engine.snapshot()
        matching = self.explain(text, doc_id, where, ranker)[1] if text and text.strip() else []
        digest = self._texts().of([doc_id])[doc_id]
        judged = {rows.topic.name: grades for rows in self._all_rows() if (grades := rows.grades(doc_id, digest))}
        return open_document(snapshot, doc_id, offset, limit, (text or "").strip(), matching, judged)

    def facets(self) -> list[Facet]:
        """Return the columns of the metadata with their values and counts, or their ranges."""
        snapshot, cached = self.engine.snapshot(), self._facets
        if cached is None or cached[0] is not snapshot:
            cached = snapshot, facets_of(snapshot.documents_table())
            self._facets = cached
        return cached[1]

    def condition(self, chosen: Mapping[str, Sequence[Any]]) -> str | None:
        """Return the condition for ``where`` on documents with chosen values of :meth:`facets`; None without values."""
        return condition(self.engine.snapshot().documents_table(), chosen)

    def titles(self, doc_ids: Sequence[str]) -> dict[str, str]:
        """Return the titles of documents by id, without those that the engine does not have."""
        collection = self.engine.snapshot().collection
        numbers = collection.find_documents(doc_ids).tolist()
        numbered = zip(doc_ids, numbers, strict=True)
        return {doc_id: title_of(collection, number) for doc_id, number in numbered if number >= 0}

    def query_text(self, query_id: str) -> str | None:
        """Return the text of a query that a ranker was trained on: one of the engine's, or a topic; None for others."""
        collection = self.engine.snapshot().collection
        try:
            (number,) = collection.query_numbers([query_id]).tolist()
        except InputError:
            return {exported_id(topic): topic.text or topic.name for topic in self.store.topics()}.get(query_id)
        return "\n".join(collection.queries.paragraphs_of(number))

    # Topics and judgements.

    def create_topic(
        self, text: str = "", name: str | None = None, known: Mapping[str, int] | None = None
    ) -> TopicSummary:
        """Add a topic, or return the one of that name, which gets no known documents.

        Parameters
        ----------
        text : str
            What is looked for. It may be empty if a known document is relevant.
        name : str, optional
            Default: the text.
        known : mapping of str to int, optional
            Grades of documents that were judged before.

        Raises
        ------
        InputError
            For known documents of a topic that exists: :meth:`import_judgements` adds them, which not everybody may do.
        """
        check_length(text)
        with self._creating:  # so that nobody adds the topic meanwhile
            called = (name or text).strip()
            if known and any(topic.name == called for topic in self.store.topics()):
                raise InputError(
                    f"known documents must be those of a new topic, found {called!r:.100}, which is there already; "
                    "import their judgements, or choose another name"
                )
            review = self._reviews.begin(text or None, name, known or {})
        return self.topic(review.topic.number)

    def topics(self) -> list[TopicSummary]:
        """Return all topics, in the order in which they were added."""
        texts = self._texts()
        return [rows.summary(texts) for rows in self._all_rows()]

    def topic(self, topic: int) -> TopicSummary:
        """Return a topic; an unknown number raises NotFoundError."""
        return self._topic_rows(topic).summary(self._texts())

    def next(self, topic: int, n: int = 1, judge: str = "", independent: bool = False) -> list[ReviewDocument]:
        """Return the documents that a judge should judge next, the most likely relevant first; none if all were judged.

        A document that another judge got within the last ten minutes is left out, so that two judges do not read the
        same one. If nothing else is left, it is proposed two minutes after the other judge first got it;
        :meth:`n_held` counts such documents until then.

        Parameters
        ----------
        topic : int
        n : int, default 1
        judge : str, default ""
        independent : bool, default False
            Whether to propose documents that others have judged, too, to measure how far judges agree.
        """
        check_parameters("next", {"n": n}, {"n": COUNT})
        review = self._review(topic)
        if independent:
            return review.next(n, judge or None)
        with self._lock:
            proposing = self._proposing.setdefault(topic, threading.Lock())
        with proposing:  # so that two judges who ask at once get different documents
            now = self._clock()
            offered = self._offers(topic, now)
            others = {doc_id: offer for doc_id, offer in offered.items() if offer.judge != judge}
            left = review.next(n + len(others))
            chosen = [document for document in left if document.doc_id not in others][:n]
            if not chosen:
                late = [document for document in left if now - others[document.doc_id].since >= _LAST_OFFER_SECONDS]
                chosen = sorted(late, key=lambda document: others[document.doc_id].since)[:n]
            for document in chosen:
                before = offered.get(document.doc_id)
                since = before.since if before is not None and before.judge == judge else now
                offered[document.doc_id] = _Offer(judge, since, now)
            with self._lock:
                self._offered[topic] = offered
            return chosen

    def n_held(self, topic: int, judge: str = "") -> int:
        """Return the number of documents to judge that are left out of :meth:`next` because other judges got them."""
        grades = self._topic_rows(topic).grades
        offers = self._offers(topic, self._clock())
        return sum(offer.judge != judge and not grades(doc_id) for doc_id, offer in offers.items())

    def _offers(self, topic: int, now: float) -> dict[str, _Offer]:
        """Return the offers that hold documents from other judges."""
        with self._lock:
            offers = self._offered.get(topic, {}).items()
            return {doc_id: offer for doc_id, offer in offers if now - offer.renewed < _OFFER_SECONDS}

    def judge(
        self,
        topic: int,
        doc_id: str,
        grade: int,
        judge: str = "",
        note: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Judge a document. The judgement is on disk when this returns.

        One that repeats the last judgement of the document adds nothing. The judgements of other judges are kept beside
        it: :meth:`topic` and :meth:`progress` count contradictions.

        Parameters
        ----------
        topic : int
        doc_id : str
        grade : int
            0 for irrelevant, 1 or more for relevant.
        judge : str, default ""
        note : str, optional
        seconds : float, optional
            How long the judge took.
        """
        check_document(self.engine, doc_id)
        check_length(note or "")
        present = self._texts().of([doc_id])[doc_id]
        if not self._topic_rows(topic).is_repeated(doc_id, judge, check_grade(grade), note, present):
            if self._is_under_review(doc_id):
                self._review(topic).judge(doc_id, grade, judge, note, seconds)
            else:
                row = Judgement(doc_id, "judged", check_grade(grade), judge, seconds, note)
                digest = text_digest(self.engine, doc_id)
                self.store.add(self._topic_rows(topic).topic, replace(row, document=digest))
        self._withdraw(topic, doc_id)

    def skip(self, topic: int, doc_id: str, judge: str = "") -> None:
        """Put a document off: it is proposed again after all others."""
        check_document(self.engine, doc_id)
        if self._is_under_review(doc_id):
            self._review(topic).skip(doc_id, judge)
        self._withdraw(topic, doc_id)

    def undo(self, topic: int, judge: str = "") -> str:
        """Take the last judgement or skip of a judge back, and return the id of its document."""
        return self._review(topic).undo(judge)

    def progress(self, topic: int, rules: Sequence[str] | None = None) -> Progress:
        """Return how much was read and found, and what stopping rules say, as :meth:`haybale.Review.progress` does."""
        return self._review(topic).progress(rules)

    def audit(self, topic: int) -> TopicAudit:
        """Return the audit of a topic, to begin it and to read what it certifies."""
        return self._review(topic).audit

    def judgements(self, topic: int) -> pd.DataFrame:
        """Return the judgements that count: a row for each document and judge (:meth:`haybale.Review.judgements`)."""
        return self._review(topic).judgements()

    def agreement(self, topic: int) -> pd.DataFrame:
        """Return how far each pair of judges agrees, with Cohen's kappa (:meth:`haybale.Review.agreement`)."""
        return self._review(topic).agreement()

    def import_judgements(self, topic: int, grades: Mapping[str, int]) -> int:
        """Add old judgements of documents that were not judged, and return their number."""
        return self._review(topic).add_judgements(grades)

    def export(self, topic: int, format: str = "qrels") -> str:
        """Return the judgements of a topic as ``"qrels"``, ``"csv"``, ``"beir"`` or ``"ris"``."""
        return self._review(topic).export(format)

    def grades(self, topic: int, doc_id: str) -> dict[str, int]:
        """Return the latest grade of each judge of a document; the judge who judged last is last."""
        return self._topic_rows(topic).grades(doc_id)

    def contradicted(self, topic: int, doc_id: str, judge: str) -> dict[str, int]:
        """Return the grades of the judges who contradict a judge about a document."""
        grades = self.grades(topic, doc_id)
        judged = grades.get(judge)
        return {} if judged is None else {name: grade for name, grade in grades.items() if (grade > 0) != (judged > 0)}

    def labels(self, topic: int) -> list[bool]:
        """Return whether each proposed and judged document is relevant, in the order in which they were proposed."""
        labels: list[bool] = self._review(topic).screening().labels.tolist()
        return labels

    def _withdraw(self, topic: int, doc_id: str) -> None:
        with self._lock:
            self._offered.get(topic, {}).pop(doc_id, None)

    def _topic_of(self, number: int) -> Topic:
        topics = {topic.number: topic for topic in self.store.topics()}
        if number not in topics:
            raise NotFoundError(f"expected the number of a topic, found {number}; see the list of topics")
        return topics[number]

    def _topic_rows(self, number: int) -> TopicRows:
        with self._lock:
            if number not in self._rows:
                self._rows[number] = TopicRows(self.store, self._topic_of(number))
            return self._rows[number]

    def _all_rows(self) -> list[TopicRows]:
        return [self._topic_rows(topic.number) for topic in self.store.topics()]

    def _texts(self) -> TextDigests:
        """Return the digests of the documents' texts: of the reviews, or of the engine until reviews are ready."""
        snapshot = self._reviews.snapshot if self._reviews.is_ready else self.engine.snapshot()
        with self._lock:
            if self._digests is None or self._digests[0] is not snapshot:
                self._digests = snapshot, TextDigests(snapshot.collection)
            return self._digests[1]

    def _review(self, number: int) -> Review:
        return self._reviews.get(self._topic_rows(number).topic)

    def _is_under_review(self, doc_id: str) -> bool:
        """Return whether reviews know a document; they do not know one that was just added."""
        return bool(self._reviews.snapshot.collection.find_documents([doc_id])[0] >= 0)

    # Training.

    def start_training(self, recipe: str | None = None, random_state: int = 0) -> ModelTraining:
        """Begin to train a ranker on the judgements of all topics, in a process of its own.

        The default ranker is what it is compared with, and stays the default until :meth:`accept`.

        Parameters
        ----------
        recipe : {"learned", "similar topics", "svr"}, optional
            What to train. Default: ``"learned"`` from 10 topics on, else ``"svr"``.
        random_state : int, default 0

        Raises
        ------
        InputError
            If a training is running, or the engine or the judgements are in memory only.
        """
        return self._with_trainings().start(self.ranker(), recipe, random_state)

    @property
    def can_train(self) -> bool:
        """Whether the engine and the judgements are in files, as training needs."""
        return self._trainings is not None

    def trainings(self) -> list[ModelTraining]:
        """Return all trainings, the last one first."""
        return [] if self._trainings is None else self._trainings.all()

    def training(self, number: int) -> ModelTraining:
        """Return a training with its progress or its result; an unknown number raises NotFoundError."""
        return self._with_trainings().get(number)

    def accept(self, number: int) -> str:
        """Make the ranker of a training the default ranker, and return its name."""
        trainings = self._with_trainings()
        model = trainings.model(number)
        with self._lock:
            trainings.accept(number)
            self._default = _trained_name(number)
            self._keep_trained(number, model)
            return self._default

    def _keep_trained(self, number: int, model: Ranker) -> None:
        self._rankers[_trained_name(number)] = model
        if self.processes is not None:
            self.processes.add(_trained_name(number), self._with_trainings().model_folder(number))

    def revert(self) -> str:
        """Take the last acceptance back, and return the name of the ranker that is the default again."""
        trainings = self._with_trainings()
        with self._lock:
            trainings.revert()
            return self._take_over_accepted()

    def _take_over_accepted(self) -> str:
        """Make the ranker that was accepted last the default, if it can be loaded; otherwise the first one."""
        trainings = self._with_trainings()
        self._default = next(iter(self._rankers))
        for number in trainings.accepted():
            name = _trained_name(number)
            try:
                if name not in self._rankers:
                    self._keep_trained(number, trainings.model(number))
                self._default = name
            except (HaybaleError, OSError) as error:  # the engine was built again, or files are damaged
                _LOGGER.warning("training %d cannot be used: %s", number, error)
        return self._default

    def _with_trainings(self) -> Trainings:
        if self._trainings is None:
            raise InputError(
                "start_training() needs an engine in a folder and judgements in a file, found one in memory; use both"
            )
        return self._trainings

    def close(self) -> None:
        """End a running training, and the processes that search."""
        self.stop_processes()
        if self._trainings is not None:
            self._trainings.stop()

    # Processes.

    def start_processes(self) -> None:
        """Start the processes that search, without waiting until they are ready; searches run here until then."""
        if self.processes is not None:
            self.processes.start()

    def stop_processes(self) -> None:
        """End the processes that search; searches run here afterwards."""
        if self.processes is not None:
            self.processes.close()

    # The engine.

    def refresh(self) -> bool:
        """Take over documents that others have added to the engine's folder; return whether anything has changed."""
        if self.processes is not None:
            self.processes.refresh()
        return self.engine.refresh()

    def prepare_reviews(self) -> bool:
        """Let reviews go on with the documents that the engine has now; return whether these have changed.

        It may take a minute for a large engine. Reviews work on the earlier documents meanwhile.
        """
        return self._reviews.prepare()

    @property
    def reviews_are_ready(self) -> bool:
        """Whether a review can begin without waiting for :meth:`prepare_reviews`."""
        return self._reviews.is_ready


class _Offer(NamedTuple):
    """A document that a judge got: since when, and when the judge last asked for it, in seconds of the clock."""

    judge: str
    since: float
    renewed: float


def _trained_name(number: int) -> str:
    return f"trained {number}"
