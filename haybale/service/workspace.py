"""The workspace of a team: everything that the pages and the REST interface do, without HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests
from haybale.errors import InputError
from haybale.parameters import COUNT, FROM_0, check_parameters
from haybale.review import (
    JudgementStore,
    Judges,
    Progress,
    Review,
    ReviewDocument,
    ScreeningPlan,
    Topic,
    TopicAudit,
    TopicReport,
    write_topic,
)
from haybale.review.exports import query_id as exported_id
from haybale.review.judgement_store import Judgement
from haybale.review.protocol import reason_details
from haybale.review.topic_ranking import text_digest
from haybale.review.workbook_export import exported_workbook
from haybale.search import SearchResults, Snippet
from haybale.search.explanation import Explanation
from haybale.search.searching import explain_hit, search, title_of
from haybale.service.added_records import AddedRecords
from haybale.service.document_counts import DocumentCounts
from haybale.service.document_files import DocumentFiles
from haybale.service.document_list import DocumentList, default_order, list_documents
from haybale.service.facets import Facet
from haybale.service.logged_actions import LoggedActions
from haybale.service.long_queries import LongQueries
from haybale.service.matter_log import MatterLog
from haybale.service.matter_store import MatterFile, searches_file_of
from haybale.service.offers import Offers
from haybale.service.open_reviews import OpenReviews
from haybale.service.opened_document import OpenedDocument, open_document
from haybale.service.request_errors import NotFoundError, check_document
from haybale.service.request_texts import check_length, paragraphs
from haybale.service.saved_searches import SavedSearches
from haybale.service.served_rankers import ServedRankers
from haybale.service.topic_desk import TopicDesk
from haybale.service.topic_groups import TopicGroups
from haybale.service.topic_search import TopicSearch
from haybale.service.topic_summary import TopicRows, TopicSummary
from haybale.service.training_readiness import StoreReadiness, TrainingReadiness
from haybale.service.trainings import ModelTraining

if TYPE_CHECKING:
    import pandas as pd

    from haybale.rankers import Ranker

_LOGGER = logging.getLogger("haybale.service")

MAX_RESULTS = 1000  # offset + k of a search


class Workspace(ServedRankers):
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

    Attributes
    ----------
    searches, log : SavedSearches and MatterLog
        Saved searches, and what everybody does. They are kept beside the store, in ``judgements-searches.sqlite``.

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
        super().__init__(engine, rankers, judgements, models, processes)
        self.store = judgements
        self.matter = MatterFile(engine, None if judgements.path is None else searches_file_of(judgements.path))
        self.log = MatterLog(self.matter)
        self.logged = LoggedActions(self.log, self.matter, self.ranker)
        self.searches = SavedSearches(self.matter, self.logged, self.ranker, self.condition)
        judgements.on_added, self.on_trained = self.logged.judged, self.logged.trained
        self.files, self.added_records = DocumentFiles(engine, on_opened=self.logged.opened), AddedRecords(engine)
        self.counts = DocumentCounts(engine)
        self._rows: dict[int, TopicRows] = {}
        self._reviews = OpenReviews(engine, judgements)
        self.duplicates = TopicGroups(self._reviews, judgements, self._topic_of)
        self._creating, self._clock = threading.Lock(), clock
        self.desk = TopicDesk(judgements, self._review, self._topic_rows, clock)
        self._offers: dict[int, Offers] = {}  # by topic
        self._readiness = StoreReadiness(judgements)
        self._digests: tuple[Engine, TextDigests] | None = None
        beside = None if judgements.path is None else judgements.path.with_name(f"{judgements.path.name}.queries")
        self.long_queries = LongQueries(beside)

    # Search.

    def search(
        self,
        text: str,
        k: int = 10,
        where: str | None = None,
        ranker: str | None = None,
        offset: int = 0,
        topic: int | None = None,
        together: str | None = None,
        judge: str = "",
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
            Return documents that belong together as one, as :meth:`haybale.Ranker.search` does: ``"copies"``, or those
            with one value of this column; ``k`` and ``offset`` are numbers of groups then.
        judge : str, default ""
            Who searches. What this judge must not see of the topic does not change the ranking.

        Raises
        ------
        InputError
            For an empty or too long text, a wrong condition, or more than 1,000 results.
        """
        check_parameters("search", {"k": k, "offset": offset}, {"k": COUNT, "offset": FROM_0})
        if offset + k > MAX_RESULTS:
            raise InputError(f"offset + k must be at most {MAX_RESULTS:,}, found {offset + k:,}; narrow the search")
        parts, results, before = paragraphs(text), None, self.logged.documents()
        if self.processes is not None and topic is None:
            results = self.processes.search(self._chosen(ranker), parts, k, where, offset, together)
        if results is None:
            results = search(self._searched(ranker, topic, judge), parts, k, where, offset, together)
        doc_ids, documents = [hit.doc_id for hit in results], (before, self.logged.documents())
        more = {"where": where, "k": k, "offset": offset, "topic": topic, "together": together}
        self.logged.searched(text, doc_ids, self._chosen(ranker), documents, judge, **more)
        return results

    def explain(
        self,
        text: str,
        doc_id: str,
        where: str | None = None,
        ranker: str | None = None,
        topic: int | None = None,
        judge: str = "",
    ) -> tuple[Explanation, list[Snippet]]:
        """Explain the score that a document has in :meth:`search`, and return its best passages."""
        check_document(self.engine, doc_id)
        self.logged.opened(doc_id, "explanation", judge)
        return explain_hit(self._searched(ranker, topic, judge), paragraphs(text), doc_id, where)

    def _searched(self, ranker: str | None, topic: int | None, judge: str) -> Ranker | TopicSearch:
        chosen = self.ranker(ranker)
        return chosen if topic is None else TopicSearch(chosen, *self._review(topic).scores(seen_by=judge))

    def document(
        self,
        doc_id: str,
        text: str | None = None,
        where: str | None = None,
        ranker: str | None = None,
        offset: int = 0,
        limit: int = 200,
        judge: str = "",
    ) -> OpenedDocument:
        """Return a document with its passages, and what a query matches in them.

        Parameters
        ----------
        doc_id : str
        text, where, ranker : str, optional
            The search that found the document. Default: none.
        offset, limit : int
            The first passage, default 0, and the largest number of passages, default 200.
        judge : str, default ""
            Who reads: judgements that this judge must not see are left out.
        """
        check_parameters("document", {"offset": offset, "limit": limit}, {"offset": FROM_0, "limit": COUNT})
        check_document(self.engine, doc_id)
        self.logged.opened(doc_id, "text", judge)
        snapshot, matching = self.engine.snapshot(), list[Snippet]()
        if text and text.strip():
            matching = explain_hit(self.ranker(ranker), paragraphs(text), doc_id, where)[1]
        digest = self._texts().of([doc_id])[doc_id]
        all_rows = {rows.topic.name: rows for rows in self._all_rows()}
        judged = {name: grades for name, rows in all_rows.items() if (grades := rows.grades(doc_id, judge, digest))}
        resolved = {name: row.grade or 0 for name in judged if (row := all_rows[name].resolution(doc_id)) is not None}
        return open_document(snapshot, doc_id, offset, limit, (text or "").strip(), matching, judged, resolved)

    def documents(
        self,
        where: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> DocumentList:
        """Return documents that fulfil a condition, without a query.

        Parameters
        ----------
        where : str, optional
            An SQL condition on the metadata. Default: all documents.
        sort : str, optional
            The column to sort by, such as ``"title"``. Default: the first column of dates, the newest document first;
            without one, the title.
        descending : bool, default False
            Whether the largest value comes first.
        offset, limit : int
            The first document, and the largest number of documents.
        """
        check_parameters("documents", {"offset": offset, "limit": limit}, {"offset": FROM_0, "limit": COUNT})
        order = (sort, descending) if sort else default_order(self.engine)
        listed = list_documents(self.engine, where, *order, offset, limit)
        self.logged.listed(where, order, offset, listed)
        return listed

    def facets(self) -> list[Facet]:
        """Return the columns of the metadata with their values and counts, or their ranges, among all documents."""
        return self.counts.table(self.engine.snapshot()).facets

    def condition(self, chosen: Mapping[str, Sequence[Any]]) -> str | None:
        """Return the condition for ``where`` on documents with chosen values of :meth:`facets`; None without values."""
        return self.counts.condition(chosen)

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
        self,
        text: str = "",
        name: str | None = None,
        known: Mapping[str, int] | None = None,
        double_share: float = 0.0,
        judge: str = "",
    ) -> TopicSummary:
        """Add a topic, or return the one of that name, which gets no known documents and stays as it is.

        Parameters
        ----------
        text : str
            What is looked for. It may be empty if a known document is relevant.
        name : str, optional
            Default: the text.
        known : mapping of str to int, optional
            Grades of documents that were judged before.
        double_share : float, default 0
            The share of the documents that two judges judge (:class:`~haybale.review.ScreeningPlan`).
        judge : str, default ""
            Who adds the topic.

        Raises
        ------
        InputError
            For known documents, or a share, of a topic that exists: :meth:`import_judgements` and :meth:`judges` change
            it, which not everybody may do.
        """
        check_length(text)
        with self._creating:  # so that nobody adds the topic meanwhile
            called = (name or text).strip()
            plan = ScreeningPlan(double_share)
            if (known or plan.is_double) and any(topic.name == called for topic in self.store.topics()):
                what = "known documents" if known else "a share that two judges judge"
                raise InputError(
                    f"{what} must be of a new topic, found {called!r:.100}, which is there already; choose another "
                    "name, or let an admin import judgements and change who judges"
                )
            review = self._reviews.begin(text or None, name, known or {})
            if plan.is_double:
                review.judges.screen_double(plan.double_share, plan.seed, judge)
        return self.topic(review.topic.number)

    def topics(self) -> list[TopicSummary]:
        """Return all topics, in the order in which they were added."""
        return [rows.summary(self._texts()) for rows in self._all_rows()]

    def topic(self, topic: int) -> TopicSummary:
        """Return a topic; an unknown number raises NotFoundError."""
        return self._topic_rows(topic).summary(self._texts())

    def next(self, topic: int, n: int = 1, judge: str = "", independent: bool = False) -> list[ReviewDocument]:
        """Return the documents that a judge should judge next, the most likely relevant first; none if all were judged.

        A document that another judge got within the last ten minutes is left out, so that two judges do not read the
        same one; a document that needs two judges, when two others got it. If nothing else is left, it is proposed two
        minutes after the other judge first got it; :meth:`n_held` counts such documents until then.

        Parameters
        ----------
        topic : int
        n : int, default 1
        judge : str, default ""
        independent : bool, default False
            Whether to propose first what others have judged, as in double screening, also in a topic without it; what
            other judges got is not left out then.
        """
        check_parameters("next", {"n": n}, {"n": COUNT})
        review, plan = self._review(topic), self._topic_rows(topic).plan
        plan.check_judge(judge)
        if independent and not plan.is_double:
            return review.next(n, judge or None)
        return self._offers_of(topic).next(n, judge, lambda most: review.next(most, judge if plan.is_double else None))

    def n_held(self, topic: int, judge: str = "") -> int:
        """Return the number of documents to judge that are left out of :meth:`next` because other judges got them."""
        return self._offers_of(topic).n_held(judge)

    def _offers_of(self, topic: int) -> Offers:
        with self._lock:
            rows = self._topic_rows(topic)
            return self._offers.setdefault(topic, Offers(self._clock, rows.n_places))

    def judge(
        self,
        topic: int,
        doc_id: str,
        grade: int,
        judge: str = "",
        note: str | None = None,
        seconds: float | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        """Judge a document. The judgement is on disk when this returns.

        One that repeats the last judgement of the document adds nothing. The judgements of other judges are kept beside
        it: :meth:`topic` and :meth:`progress` count contradictions, and :meth:`judges` lists them.

        Parameters
        ----------
        topic : int
        doc_id : str
        grade : int
            0 for irrelevant, 1 or more for relevant.
        judge : str, default ""
        note : str, optional
        seconds, reasons : float and sequence of str, optional
            How long the judge took; reasons for exclusion, the main one first.
        """
        check_document(self.engine, doc_id)
        check_length(note or "")
        self._topic_rows(topic).plan.check_judge(judge)
        present = self._texts().of([doc_id])[doc_id]
        if not self._topic_rows(topic).is_repeated(doc_id, judge, grade, note, present, reasons):
            if self._is_under_review(doc_id):
                self._review(topic).judge(doc_id, grade, judge, note, seconds, reasons)
            else:
                digest, details = text_digest(self.engine, doc_id), reason_details(grade, reasons)
                row = Judgement(doc_id, "judged", grade, judge, seconds, note, document=digest, details=details)
                self.store.add(self._topic_rows(topic).topic, row)
        self._offers_of(topic).withdraw(doc_id, judge)

    def skip(self, topic: int, doc_id: str, judge: str = "") -> None:
        """Put a document off: it is proposed again after all others."""
        check_document(self.engine, doc_id)
        if self._is_under_review(doc_id):
            self._review(topic).skip(doc_id, judge)
        self._offers_of(topic).withdraw(doc_id, judge)

    def undo(self, topic: int, judge: str = "") -> str:
        """Take the last judgement or skip of a judge back, and return the id of its document."""
        return self._review(topic).undo(judge)

    def progress(self, topic: int, rules: Sequence[str] | None = None) -> Progress:
        """Return how much was read and found, and what stopping rules say, as :meth:`haybale.Review.progress` does."""
        return self._review(topic).progress(rules)

    def audit(self, topic: int) -> TopicAudit:
        """Return the audit of a topic, to begin it and to read what it certifies."""
        return self._review(topic).audit

    def judgements(self, topic: int, judge: str | None = None) -> pd.DataFrame:
        """Return the judgements that count (:meth:`haybale.Review.judgements`).

        With the name of a judge, those that this judge must not see are left out.
        """
        return self._review(topic).judgements(seen_by=judge)

    def judges(self, topic: int) -> Judges:
        """Return the judges of a topic: who must judge what, conflicts and resolutions, agreement."""
        return self._review(topic).judges

    def change_screening(self, topic: int, double_share: float, seed: int = 0, judge: str = "") -> None:
        """Say which documents need two judges from now on (:meth:`haybale.review.Judges.screen_double`)."""
        self.judges(topic).screen_double(double_share, seed, judge)

    def import_judgements(self, topic: int, grades: Mapping[str, int]) -> int:
        """Add old judgements of documents that were not judged, and return their number."""
        return self._review(topic).add_judgements(grades)

    def export(self, topic: int, format: str = "qrels", judge: str | None = None, documents: str = "judged") -> str:
        """Return the judgements of a topic as ``"qrels"``, ``"csv"``, ``"beir"`` or ``"ris"``.

        With the name of a judge, those that this judge must not see are left out.
        """
        content = self._review(topic).export(format, documents=documents, seen_by=judge)
        self.logged.exported(f"topic {topic}", len(content), judge or "", format=format, documents=documents)
        return content

    def export_workbook(self, topic: int, documents: str = "judged", judge: str | None = None) -> bytes:
        """Return the table of a topic as an Excel workbook, as :meth:`export` does."""
        content = exported_workbook(self._review(topic), documents, judge)
        self.logged.exported(f"topic {topic}", len(content), judge or "", format="xlsx", documents=documents)
        return content

    def report(self, topic: int, documents: str = "judged", judge: str | None = None) -> TopicReport:
        """Return what is taken along of a topic (:meth:`haybale.Review.report`), as a judge may see it."""
        report = self._review(topic).report(documents, judge)
        self.logged.exported(f"topic {topic}", None, judge or "", format="report", documents=documents)
        return report

    def write_topic(self, topic: int, path: Path, judge: str | None = None, **options: Any) -> None:
        """Write a topic as one zip file or folder (:func:`haybale.review.write_topic`), as a judge may see it."""
        write_topic(self._review(topic), path, seen_by=judge, **options)
        self.logged.exported(f"topic {topic}", None, judge or "", format="folder")

    def grades(self, topic: int, doc_id: str, judge: str) -> dict[str, int]:
        """Return the latest grade of each judge of a document that a judge may see; who judged last is last."""
        return self._topic_rows(topic).grades(doc_id, judge)

    def shown_grades(self, topic: int, doc_ids: Sequence[str], judge: str) -> dict[str, int]:
        """Return the grades that count of those documents whose present text was judged, as far as a judge may see."""
        rows, texts = self._topic_rows(topic), self._texts().of(list(doc_ids))
        grades = {doc_id: rows.shown_grade(doc_id, judge, texts[doc_id]) for doc_id in doc_ids}
        return {doc_id: grade for doc_id, grade in grades.items() if grade is not None}

    def contradicted(self, topic: int, doc_id: str, judge: str) -> dict[str, int]:
        """Return the grades of the judges who contradict a judge about a document that needs one judge."""
        return self._topic_rows(topic).contradicted(doc_id, judge)

    def labels(self, topic: int) -> list[bool]:
        """Return whether each proposed and judged document is relevant, in the order in which they were proposed."""
        labels: list[bool] = self._review(topic).screening().labels.tolist()
        return labels

    def _topic_of(self, number: int) -> Topic:
        topics = {topic.number: topic for topic in self.store.topics()}
        if number not in topics:
            raise NotFoundError(f"expected the number of a topic, found {number}; see the list of topics")
        return topics[number]

    def _topic_rows(self, number: int) -> TopicRows:
        with self._lock:
            if number not in self._rows:
                self._rows[number] = TopicRows(self.store, self._topic_of(number), self.duplicates.representatives)
            return self._rows[number]

    def _all_rows(self) -> list[TopicRows]:
        return [self._topic_rows(topic.number) for topic in self.desk.listed()]

    def _texts(self) -> TextDigests:
        """Return the digests of the documents' texts: of the reviews, or of the engine until reviews are ready."""
        snapshot = self._reviews.snapshot if self._reviews.is_ready else self.engine.snapshot()
        with self._lock:
            if self._digests is None or self._digests[0] is not snapshot:
                self._digests = snapshot, TextDigests(snapshot.collection)
            return self._digests[1]

    def opening(self, topic: int) -> str | None:
        """Return what is still to be done until the review of a topic can begin; None if it can."""
        return self._reviews.opening(self._topic_of(topic))

    def _review(self, number: int) -> Review:
        return self._reviews.get(self._topic_rows(number).topic)

    def _is_under_review(self, doc_id: str) -> bool:
        """Return whether reviews know a document; they do not know one that was just added."""
        return bool(self._reviews.snapshot.collection.find_documents([doc_id])[0] >= 0)

    def unfinished(self) -> str | None:
        """Return what would be lost or delayed if the workspace were closed now, in words; None if nothing would."""
        if any(training.status == "running" for training in self.trainings()):
            return "a training is running"
        if any(file.status == "running" for file in self.added_records.files()):
            return "records are being added"
        if self._reviews.is_at_work:
            return "reviews are being prepared"
        with self._lock:
            n_open = self.desk.n_open + sum(offers.n_open for offers in self._offers.values())
        return f"judges have {n_open:,} documents open" if n_open else None

    def close(self) -> None:
        """End a running training, the process that adds records, and the processes that search."""
        self.added_records.stop()
        super().close()
        self.matter.close()

    # Training.

    def training_readiness(self) -> TrainingReadiness:
        """Return what can be trained with the judgements that there are, and what is missing for the rest.

        This waits until reviews are prepared.
        """
        return self._readiness.on(self._reviews.snapshot)

    def start_training(self, recipe: str | None = None, random_state: int = 0) -> ModelTraining:
        """Begin a training as :meth:`ServedRankers.start_training` does.

        InputError is raised, too, if the judgements are too few for the recipe.
        """
        if self.can_train:
            self.training_readiness().check(recipe)
        return super().start_training(recipe, random_state)

    # The engine.

    def refresh(self) -> bool:
        """Take over documents that others have added to the engine's folder; return whether anything has changed."""
        self.matter.checkpoint()
        if self.processes is not None:
            self.processes.refresh()
        return self.engine.refresh()

    def prepare_reviews(self) -> bool:
        """Let reviews go on with the documents that the engine has now; return whether these have changed.

        It may take a minute for a large engine. Reviews work on the earlier documents meanwhile.
        """
        return self._reviews.prepare()

    def wait_for_reviews(self) -> bool:
        """Return whether reviews are ready, after waiting for them for as long as a page may."""
        return self._reviews.wait_until_ready()

    @property
    def reviews_are_ready(self) -> bool:
        """Whether a review can begin without waiting for :meth:`prepare_reviews`."""
        return self._reviews.is_ready
