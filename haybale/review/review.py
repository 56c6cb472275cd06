"""The review of a topic: propose a document, take the judgement, learn, and say how much has been found."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.collections.ids import as_id
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.parameters import COUNT, COUNT_OR_NONE, RANDOM_STATE, SHARE, TEXT_OR_NONE, check_parameters, one_of
from haybale.review.combined_judgements import DEFAULT_RULE, RULES
from haybale.review.engine_of_judgements import bind
from haybale.review.exported_records import exported_records
from haybale.review.exports import exported, write_export
from haybale.review.full_text import FullTextStage, decisions
from haybale.review.grades import check_grade
from haybale.review.judgement_store import Judgement, JudgementStore
from haybale.review.judges import Judges
from haybale.review.known_judgements import grades_of, old_judgements
from haybale.review.progress_counts import progress_of
from haybale.review.proposals import MakesLearner, topic_learner
from haybale.review.protocol import ReviewProtocol, change_protocol, protocol_of, protocol_versions, reason_details
from haybale.review.reattachment import ensure_attached, known_by_new_ids
from haybale.review.review_results import Progress, ReviewDocument, judgement_table
from haybale.review.screening_plan import SINGLE_SCREENING, plan_of
from haybale.review.shown_documents import marked_passage, where_shown
from haybale.review.topic_audit import TopicAudit
from haybale.review.topic_duplicates import DUPLICATES, TopicDuplicates
from haybale.review.topic_ranking import Proposal, TopicRanking, with_digest
from haybale.review.topic_report import TopicReport
from haybale.review.topic_state import SAMPLE_OF, TopicState
from haybale.search.searching import metadata_of, title_of

if TYPE_CHECKING:
    import pandas as pd

    from haybale.review.prisma import PrismaNumbers
    from haybale.review.screening import Screening
    from haybale.review.simulation_results import Simulation
    from haybale.review.stopping import StoppingRule

_PARAMETERS = {
    "text": TEXT_OR_NONE,
    "topic": TEXT_OR_NONE,
    "judgements": [str, Path, JudgementStore, None],
    "combine": [*one_of(RULES), None],
    "random_state": RANDOM_STATE,
    "explore_every": COUNT_OR_NONE,
    "duplicates": [bool, None],
    "near_duplicates": [*SHARE, None],
}
_DEFAULTS: dict[str, Any] = {"random_state": 0, "explore_every": None, "combine": DEFAULT_RULE, DUPLICATES: True}


class Review:
    """The review of one topic: it proposes documents, learns from each judgement, and says how much has been found.

    Before the first judgement, documents are ranked by the topic's text; each judgement changes the ranking. Judgements
    are kept in a store, and a review that is opened again goes on with the same document. Several reviews, in this or
    in other processes, may work on one topic: each learns what the others have judged. If documents of the engine are
    added, removed or replaced, the review goes on with those that the engine has now. A judgement stays at the text
    that was judged: it follows the text to another id, and :meth:`progress` lists it if no document has the text.

    Several threads may use a review at once. :attr:`judges` says how many judges judge each document, lists what they
    disagree about, and measures how far they agree (:class:`~haybale.review.judges.Judges`).

    Parameters
    ----------
    engine : Engine
        The documents, with their indexes.
    text : str, optional
        What is looked for. It may be left out if ``known`` has relevant documents, or the store knows the topic.
    known : sequence of str, or mapping of str to int, optional
        Ids of documents that are known to be relevant, or grades by id, where 0 is irrelevant.
    judgements : str, Path or JudgementStore, optional
        The store, or its file. Default: in memory.
    topic : str, optional
        The name of the topic in the store. Default: its text.
    combine : {"any", "latest", "majority", "maximum"}, optional
        How judgements of several judges about one document are combined
        (:func:`~haybale.review.combined_judgements.combined_grade`). Default: that of the topic in the store, else
        ``"any"``: a document that one judge found relevant stays relevant, and contradictions are counted.
    random_state : int, optional
        The seed of random choices. Default: that of the topic in the store, else 0.
    explore_every : int, optional
        Propose, as every k-th document, the one about which the learner is least sure. Default: never.
    duplicates : bool, optional
        Read each group of duplicates once (:class:`~haybale.review.TopicDuplicates`, the attribute ``duplicates``).
        Default: that of the topic; true for new ones.
    near_duplicates : float, optional
        List with each proposed document those that are as similar as this, from 0 to 1, such as 0.9 (see
        :func:`~haybale.review.near_duplicates`; extra ``review``). Default: none.
    learner : callable, optional
        Makes the learner: ``learner(engine, text, random_state)`` returns a
        :class:`~haybale.review.proposals.Learner`. Default: :class:`~haybale.review.TopicLearner`.

    Raises
    ------
    InputError
        For a topic with neither a text nor a known relevant document, an unknown id, another text than the topic has,
        or a parameter out of range. Nothing is written then.
    StoreError
        If the file is not a store of judgements, or has those of another engine
        (:func:`~haybale.review.engine_of_judgements.bind`).

    Examples
    --------
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr.", "c": "A dog needs a lead."}, language="english")
    >>> review = Review(engine, "Who needs a lead?")
    >>> [first] = review.next()
    >>> first.doc_id
    'c'
    >>> review.judge("c", 1)
    >>> review.progress().n_relevant
    1
    """

    def __init__(
        self,
        engine: Engine,
        text: str | None = None,
        *,
        known: Sequence[str] | Mapping[str, int] = (),
        judgements: str | Path | JudgementStore | None = None,
        topic: str | None = None,
        combine: str | None = None,
        random_state: int | None = None,
        explore_every: int | None = None,
        duplicates: bool | None = None,
        near_duplicates: float | None = None,
        learner: MakesLearner | None = None,
    ) -> None:
        arguments = dict(locals())
        check_parameters("Review", arguments, _PARAMETERS)
        text = (text or "").strip()
        collection = engine.snapshot().collection
        grades = known_by_new_ids(collection, engine, grades_of(known))
        collection.document_numbers(grades)  # raises for unknown ids
        self.engine, self._make_learner = engine, learner or topic_learner
        self._owns_store = not isinstance(judgements, JudgementStore)
        self.store = judgements if isinstance(judgements, JudgementStore) else JudgementStore(judgements)
        try:
            if judgements is not None:
                bind(self.store, engine)
            settings = {name: arguments[name] for name in _DEFAULTS if arguments[name] is not None}
            self._begin(text, topic, grades, settings)
            self.near_duplicates, self._lock = near_duplicates, threading.RLock()
            self.judges = Judges(self.store, self.topic, self._sync, self._lock)
            self.audit = TopicAudit(self.store, self.topic, self._sync, self._lock)
            self._shown: dict[str, Judgement] = {}  # the passage, rank and model with which each document was proposed
            self._ranking: TopicRanking | None = None
            self._last_move = 0  # the last move of judgements that the ranking has seen
            self._last_event, self._plan = 0, SINGLE_SCREENING  # the last decision about the topic that was seen
            self._query_text = ""  # what the ranking looks for
            self._sync()
        except BaseException:
            self.close()
            raise

    def _begin(self, text: str, topic: str | None, grades: Mapping[str, int], settings: dict[str, Any]) -> None:
        """Find or add the topic, and add the known documents that nobody has judged."""
        name = (topic or text).strip()
        is_new = name not in [stored_topic.name for stored_topic in self.store.topics()]
        if is_new and not text and not any(grades.values()):
            named = f"topic {name!r}" if name else "a topic"
            raise InputError(f"{named} needs a text or a known relevant document, found neither; give text= or known=")
        if not name:
            raise InputError("a topic without a text needs a name; give topic=")
        self.topic = self.store.add_topic(name, text, _DEFAULTS | settings)
        self.settings: dict[str, Any] = _DEFAULTS | {DUPLICATES: False} | self.topic.settings | settings
        self.duplicates = TopicDuplicates(self.engine, self.store, self.topic, settings.get(DUPLICATES))
        self._groups = self.duplicates.groups()
        ensure_attached(self.store, self.engine)
        state = TopicState(rows=self.store.judgements(self.topic))
        self._add_known({doc_id: grade for doc_id, grade in grades.items() if not state.grades(doc_id)})

    @property
    def text(self) -> str:
        """The text of the topic; empty if it has none."""
        return self.topic.text

    def __repr__(self) -> str:
        return f"Review of {self.topic.name!r} in {self.store!r}"

    def close(self) -> None:
        """Close the store, unless it was given as a :class:`JudgementStore`."""
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Review:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _sync(self) -> TopicRanking:
        """Return the ranking of the engine's present documents, with the rows that were added since the last call."""
        snapshot, last_move = self.engine.snapshot(), self.store.last_move()
        if events := self.store.events(self.topic, after=self._last_event):
            self._last_event = events[-1].number
            self._plan, self.topic = plan_of(events, self._plan), self.store.current(self.topic)
        is_other = self._ranking is None or self._ranking.collection.passages is not snapshot.collection.passages
        is_other = is_other or (bool(events) and self.protocol.query_text(self.text) != self._query_text)
        if is_other:
            ensure_attached(self.store, snapshot)
        if is_other or (last_move != self._last_move and snapshot.has_latest_documents):
            self._rank_anew(snapshot)
        assert self._ranking is not None
        new_rows = self.store.judgements(self.topic, self._ranking.state.last)
        if self._ranking.state.last and any(map(self._ranking.is_of_other_text, new_rows)):
            # Another process judged a document that has changed since.
            ensure_attached(self.store, snapshot)
            self._rank_anew(snapshot)
            new_rows = self.store.judgements(self.topic)
        self._ranking.state.follow(self._plan)
        for row in new_rows:
            self._ranking.apply(row)
        if (groups := self.duplicates.groups(snapshot)) is not self._groups:
            self._groups = groups
            self._ranking = self._ranking.regroup(groups.representatives, self.store.judgements(self.topic))
        self._ranking.audit = self.audit.settings
        return self._ranking

    def _rank_anew(self, snapshot: Engine) -> None:
        """Begin a ranking without rows, because documents or the places of judgements have changed."""
        self._last_move, self._query_text = self.store.last_move(), self.protocol.query_text(self.text)
        learner = self._make_learner(snapshot, self._query_text or None, self.settings["random_state"])
        self._groups = self.duplicates.groups(snapshot)
        state = TopicState(self.settings["combine"], representatives=self._groups.representatives)
        self._ranking = TopicRanking(snapshot, state, learner)

    def remember(self, other: Review) -> None:
        """Take over what another review of the topic has proposed, so that judgements are noted with what was shown."""
        with other._lock, self._lock:
            self._shown = other._shown | self._shown

    # Proposals and judgements.

    def next(self, n: int = 1, judge: str | None = None) -> list[ReviewDocument]:
        """Return the documents to judge next, the most likely relevant first; none if all were judged.

        Documents of a random sample (:meth:`draw_sample`) come first, and skipped ones last.

        Parameters
        ----------
        n : int, default 1
        judge : str, optional
            Propose first what others have judged and this judge has not, in the order in which they judged it, and with
            nothing that tells their grades: in double screening, what waits for a second judge. Default: only documents
            that nobody has judged.
        """
        check_parameters("next", {"n": n, "judge": judge}, {"n": COUNT, "judge": TEXT_OR_NONE})
        with self._lock:
            ranking = self._sync()
            ready, put_off = ranking.judged_by_others(judge)
            proposals = [*ready, *ranking.drawn_to_judge()][:n]
            proposals += self.audit.draw(n - len(proposals))
            proposals += self._ranked(n - len(proposals), [proposal.number for proposal in proposals])
            proposals = [*proposals, *put_off][:n]
            probabilities = ranking.learner.probabilities() if proposals else np.empty(0)
            return [self._show(ranking, proposal, float(probabilities[proposal.number])) for proposal in proposals]

    def _ranked(self, n: int, taken: Sequence[int] = ()) -> list[Proposal]:
        """Return the documents that the learner proposes, without those held out.

        When the ranking reaches a judged document of the random sample, the learner learns its grade; nobody is asked.
        """
        ranking = self._sync()
        while proposals := ranking.ranked(n, self.settings["explore_every"], taken):
            first = proposals[0]
            if not ranking.is_held_out(first.number):
                return [proposal for proposal in proposals if not ranking.is_held_out(proposal.number)]
            row = Judgement(ranking.doc_id(first.number), "reached", rank=first.rank, model=first.model)
            self.store.add(self.topic, with_digest(row, ranking.snapshot))
            ranking = self._sync()
        return []

    def _show(self, ranking: TopicRanking, proposal: Proposal, probability: float) -> ReviewDocument:
        """Return a proposed document with its best passage, and remember what was shown.

        If another judge has judged it, there is no probability, and the passage is the one that was shown then, because
        what was learned since tells the grade.
        """
        number, rank, model = proposal
        collection, doc_id = ranking.collection, ranking.doc_id(number)
        is_judged = bool(ranking.state.grades(doc_id))
        passage = ranking.passage_shown_first(number) if is_judged else ranking.learner.best_passage(number)
        best = marked_passage(ranking, passage, self.text, without=doc_id)
        shown = Judgement(doc_id, "judged", passage_id=best.passage_id, passage=best.text, rank=rank, model=model)
        self._shown[doc_id] = with_digest(shown, ranking.snapshot)
        about = title_of(collection, number), metadata_of(collection, number)
        likely = None if is_judged else probability
        alike = ranking.similar(doc_id, self.near_duplicates), self._groups.sources_of_others(doc_id)
        return ReviewDocument(doc_id, *about, [best], likely, rank, model, *alike)

    def judge(
        self,
        doc_id: str,
        grade: int,
        judge: str = "",
        note: str | None = None,
        seconds: float | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        """Judge a document. The judgement is on disk when this returns, and the next proposal has learned from it.

        Judging a document again changes the judge's earlier grade. A document that was not proposed, such as one that a
        search found, can be judged too; stopping rules leave it out of what they count.

        Parameters
        ----------
        doc_id : str
        grade : int
            0 for irrelevant, 1 or more for relevant.
        judge : str, default ""
            Who judges.
        note : str, optional
        seconds : float, optional
            How long the judge took.
        reasons : sequence of str, optional
            Why the document is excluded, the main reason first; those of the protocol or others. Only with grade 0.

        Raises
        ------
        InputError
            If the engine does not have the document, the grade is no whole number from 0, the topic is closed, or
            documents need two judges and ``judge`` is empty.
        """
        check_parameters("judge", {"judge": judge, "note": note}, {"judge": [str], "note": TEXT_OR_NONE})
        grade = check_grade(grade)
        details = reason_details(grade, reasons)
        if seconds is not None and not (isinstance(seconds, int | float) and 0 <= seconds < float("inf")):
            raise InputError(f"seconds must be a number from 0, found {seconds!r}")
        with self._lock:
            ranking = self._sync()
            self._plan.check_judge(judge)
            doc_id = where_shown(self._shown, ranking, as_id(doc_id, "document id"))
            ranking.collection.document_numbers([doc_id])  # raises for an unknown document
            shown = self._shown_with(ranking, doc_id)
            taken = None if seconds is None else float(seconds)
            row = replace(shown, grade=grade, judge=judge, note=note, seconds=taken, details=details)
            self.store.add(self.topic, with_digest(row, ranking.snapshot))
            self._sync()

    def _shown_with(self, ranking: TopicRanking, doc_id: str) -> Judgement:
        """Return what was shown with a document, by this review or by one that was closed since."""
        if doc_id not in self._shown and not ranking.state.grades(doc_id):
            for proposal in ranking.drawn_to_judge() or self._ranked(1):
                if ranking.doc_id(proposal.number) == doc_id:
                    self._show(ranking, proposal, 0.0)
        return self._shown.get(doc_id, Judgement(doc_id, "judged"))

    def skip(self, doc_id: str | None = None, judge: str = "") -> str:
        """Put a document off, and return its id: it is proposed again after all others.

        InputError is raised if the engine does not have the document, or no document is left.

        Parameters
        ----------
        doc_id : str, optional
            Default: the document that comes next.
        judge : str, default ""
        """
        with self._lock:
            ranking = self._sync()
            if doc_id is None:
                following = self.next()
                if not following:
                    raise InputError(
                        "skip needs a document to judge, but all have been judged; call undo() or export()"
                    )
                doc_id = following[0].doc_id
            doc_id = as_id(doc_id, "document id")
            ranking.collection.document_numbers([doc_id])  # raises for an unknown document
            self.store.add(self.topic, with_digest(Judgement(doc_id, "skipped", judge=judge), ranking.snapshot))
            self._sync()
        return doc_id

    def undo(self, judge: str | None = None) -> str:
        """Take the last judgement or skip back, and return the id of its document. It stays in the store as undone.

        ``judges.undo_resolution`` takes the resolution of a conflict back.

        Parameters
        ----------
        judge : str, optional
            Take back what this judge did last. Default: whoever did it. If it is nothing, InputError is raised.
        """
        with self._lock:
            last = self._sync().state.last_of(judge, ("judged", "skipped"))
            if last is None:
                whose = "" if judge is None else f" of {judge!r}"
                raise InputError(f"undo needs a judgement{whose}, found none; judge a document first")
            self.store.add(self.topic, Judgement(last.doc_id, "undone", judge=last.judge, undoes=last.number))
            self._shown.pop(last.doc_id, None)
            self._sync()
        return last.doc_id

    def draw_sample(self, n: int) -> list[str]:
        """Draw documents at random, which :meth:`next` proposes before all others, and return their ids.

        Stopping rules with a certificate need such a sample, drawn before the reading begins. The learner does not
        learn from its judgements until the ranking gets to these documents, so that they measure the ranking. There is
        no certificate before all of them are judged: a skipped document is not judged. Call it again to draw more. A
        sample says nothing about documents that were added later: if documents were added or removed, it draws a new
        sample. InputError is raised if there are fewer than n documents that were not drawn.
        """
        check_parameters("draw_sample", {"n": n}, {"n": COUNT})
        with self._lock:
            ranking = self._sync()
            drawn = ranking.draw(n, self.settings["random_state"] or 0)
            rows = (Judgement(doc_id, "drawn", model=f"{SAMPLE_OF}{ranking.population}") for doc_id in drawn)
            self.store.add(self.topic, *(with_digest(row, ranking.snapshot) for row in rows))
            self._sync()
        return drawn

    def add_judgements(self, given: Mapping[str, int] | Frame | str | Path, query: str | None = None) -> int:
        """Add old judgements, which the learner learns from, to documents that were not judged; return their number.

        Parameters
        ----------
        given : mapping of str to int, frame, str or Path
            Grades by document id; or a frame with the columns ``query_id``, ``doc_id`` and ``relevance``; or a qrels
            file of GerDaLIR, BEIR or TREC.
        query : str, optional
            The id of the query whose judgements are added. It is needed if there are several.

        Raises
        ------
        InputError
            For unknown documents, several queries, or a document with several grades. Nothing is added then.
        """
        grades = grades_of(given if isinstance(given, Mapping) else old_judgements(given, query))
        with self._lock:
            ranking = self._sync()
            ranking.collection.document_numbers(grades)  # raises for unknown documents
            new = {doc_id: grade for doc_id, grade in grades.items() if not ranking.state.grades(doc_id)}
            self._add_known(new)
            self._sync()
        return len(new)

    def _add_known(self, grades: Mapping[str, int]) -> None:
        rows, snapshot = (Judgement(doc_id, "known", grade) for doc_id, grade in grades.items()), self.engine.snapshot()
        self.store.add(self.topic, *(with_digest(row, snapshot) for row in rows))

    # The protocol, full texts, and PRISMA numbers.

    @property
    def protocol(self) -> ReviewProtocol:
        """Criteria, reasons for exclusion, keywords and stages, as they are now."""
        return protocol_of(self.store, self.topic)

    def change_protocol(self, judge: str = "", **changes: Any) -> ReviewProtocol:
        """Change parts of :class:`~haybale.review.ReviewProtocol` by name, and return it; earlier versions are kept."""
        return change_protocol(self.store, self.topic, changes, judge)

    @property
    def full_text(self) -> FullTextStage:
        """The stage in which documents included by title and abstract are judged by their full texts."""
        return FullTextStage(self.store, self.topic, self._sync, self._lock)

    def prisma(self, **options: Any) -> PrismaNumbers:
        """Return the numbers of the PRISMA 2020 flow diagram; ``options`` are those of :func:`.prisma_numbers`."""
        from haybale.review.prisma import prisma_numbers

        with self._lock:
            return prisma_numbers(self._sync(), self.topic, self.protocol, **options)

    # Progress and results.

    def progress(self, rules: Sequence[str | StoppingRule] | None = None) -> Progress:
        """Return how much was read and found, and what stopping rules say.

        Parameters
        ----------
        rules : sequence of str or StoppingRule, optional
            Rules such as ``"cmh(target=0.9)"``. Default: ``"consecutive"``, ``"cmh"`` and ``"quant"``; and ``"qbcb"``
            if a random sample was drawn.
        """
        with self._lock:
            ranking, moves = self._sync(), self.store.moves(self.topic)
            return progress_of(ranking, moves, rules, self._groups.n_duplicates)

    def screening(self) -> Screening:
        """Return what stopping rules see: the documents that the ranking proposed, in order, and the random sample.

        Documents that were known from the start, or that a judge chose without a proposal, are left out. A document
        that needs two judges is read when both have judged it.
        """
        with self._lock:
            return self._sync().screening()

    def scores(self, seen_by: str | None = None) -> tuple[Collection, NDArray[np.float64]]:
        """Return the documents of the review, and a score (n_documents,) of each; a higher one is more likely relevant.

        Judged documents have a score, too. The scores of different reviews cannot be compared. With the name of a judge
        as ``seen_by``, documents that another judge has judged and that wait for a second one have the score NaN,
        because the learner's score would tell the grade.
        """
        with self._lock:
            ranking = self._sync()
            return ranking.collection, ranking.scores(seen_by)

    def judgements(self, seen_by: str | None = None) -> pd.DataFrame:
        """Return the judgements that count: a row for each document and judge, in the order in which they were given.

        The columns are those of :class:`~haybale.review.Judgement`; judgements that were undone or changed are left
        out. ``is_resolution`` is true for a row that resolves a conflict between judges. ``reasons`` are those for
        exclusion. ``status`` is ``"orphaned"`` if the engine no longer has the document, ``"replaced"`` if it has
        another text than the one that was judged, and otherwise empty.

        Parameters
        ----------
        seen_by : str, optional
            Leave out what this judge must not see: judgements of others about documents that wait for a second judge.
            Default: return all.
        """
        with self._lock:
            ranking = self._sync()
            rows = (ranking.state if seen_by is None else ranking.state.seen_by(seen_by)).graded_rows()
            return judgement_table(rows, [ranking.status_of(row) for row in rows])

    def simulate(self, **options: Any) -> Simulation:
        """Simulate the review again with its judgements: how early could the relevant documents have been found?

        Documents that were not judged count as irrelevant.

        Parameters
        ----------
        **options
            ``start``, ``seeds``, ``target``, ``rules``, ``sample``, ``explore_every``, ``learn_from`` and
            ``random_state`` of :func:`~haybale.review.simulate`.

        Raises
        ------
        InputError
            If no relevant document was judged, or an option is wrong.
        """
        from haybale.review.simulation import LabelledTopic, simulate

        with self._lock:
            ranking = self._sync()
            relevant = [doc_id for doc_id, grade in ranking.learnable_grades().items() if grade > 0]
            relevant += [copy for doc_id in relevant for copy in self._groups.others(doc_id)]
        topic = LabelledTopic(self.topic.name, relevant, self._query_text or None)
        return simulate(self.engine, topics=[topic], learner=self._make_learner, **options)

    def export(
        self,
        format: str = "qrels",
        path: str | Path | None = None,
        documents: str = "judged",
        seen_by: str | None = None,
    ) -> str:
        """Return the judgements as text, combined over judges, and write them if a path is given.

        Parameters
        ----------
        format : {"qrels", "csv", "beir", "ris", "json", "bibtex", "nbib"}, default "qrels"
            ``"qrels"`` is TREC's format: topic, 0, document, grade. ``"csv"`` has a row for each document with all that
            is known about it (:mod:`haybale.review.exports`); :func:`~haybale.review.exported_workbook` has the same
            for Excel. ``"beir"`` is the tab-separated qrels of BEIR; a path becomes a folder with ``queries.jsonl``
            and ``qrels/train.tsv``. ``"ris"``, ``"bibtex"`` and ``"nbib"`` have records for reference managers,
            ``"json"`` the protocol, and each document with its citation, passage and judgements.
        path : str or Path, optional
            The file, or the folder for ``"beir"``. An existing file is replaced.
        documents : {"judged", "all"}, default "judged"
            With ``"all"``, CSV and RIS have also the documents that nobody has judged, the best first.
        seen_by : str, optional
            Leave out what this judge must not see, as :meth:`judgements` does. Default: write all.

        Raises
        ------
        InputError
            If an id cannot be written in the format.
        """
        text = exported(format, self.report(documents, seen_by))
        if path is not None:
            write_export(format, self.topic, text, Path(path))
        return text

    def report(self, documents: str = "judged", seen_by: str | None = None) -> TopicReport:
        """Return what is taken along of the topic, for Word and other formats; as :meth:`export` chooses documents."""
        with self._lock:
            ranking = self._sync()
            state = decisions(ranking.state if seen_by is None else ranking.state.seen_by(seen_by))
            hides_estimates = seen_by is not None and bool(ranking.state.waiting)
            records = exported_records(ranking, documents, state, self._groups, hides_estimates, self.text)
            collection, changes = ranking.collection, protocol_versions(self.store, self.topic)
            return TopicReport(self.topic, collection.name, collection.n_documents, records, self.protocol, changes)
