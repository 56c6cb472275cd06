"""A ranker that answers with a set: of another ranker's first documents, those that it takes to be relevant."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.manifest import read_tensors, write_tensors
from haybale.parameters import BOOLEAN, COUNT, RANDOM_STATE, SHARE, one_of
from haybale.rankers.models.answer_rules import OBJECTIVES, AnswerRule, JudgedCandidates, expected_f1, fitted_rule
from haybale.rankers.models.candidate_features import candidate_feature_names, candidate_features
from haybale.rankers.models.relevance_models import MODELS, RelevanceModel, fit_models
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker, batches_of
from haybale.ranking.runs import runs_of
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

if TYPE_CHECKING:
    import pandas as pd

_N_FOLDS = 5
_QUERIES_AT_ONCE = 512  # whose features are in memory
_MIN_QUERIES = 10  # training queries with a relevant candidate
_MAX_FIXED_DEPTH = 20  # fixed depths that the fit report compares with
_FEATURES_NAMED = 3  # features that an explanation names
_TENSORS = "models.safetensors"

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Decision:
    """How candidates become an answer: a model of their probabilities, and a rule."""

    model: RelevanceModel
    rule: AnswerRule


@dataclass(frozen=True, eq=False)
class _Learned:
    """What is learned from training queries whatever the objective is."""

    query_ids: Sequence[str]  # of the training queries (m,)
    fold_of: Ints  # (m,)
    ranks: Ints  # (n,) of the candidates
    judged: JudgedCandidates  # with probabilities by the models of the folds
    model: RelevanceModel
    fold_models: list[RelevanceModel]
    losses: dict[str, float]  # log loss in cross-validation of each kind of model


@dataclass(frozen=True, eq=False)
class DecidedCandidates:
    """The first documents of the inner ranker for the queries of a batch, with what was decided about them."""

    run: Run
    features: Array  # (n, f)
    probabilities: Array  # (n,)
    is_answer: Mask  # (n,)

    def answers(self, depth: int) -> Run:
        """Return the first ``depth`` documents of each answer, in the order of the inner ranker."""
        rows, _, documents, doc_ids, scores = self.run.coded()
        chosen = self.is_answer
        return Run(self.run.query_ids, rows[chosen], documents[chosen], doc_ids, scores[chosen]).top(depth)


@dataclass(eq=False, repr=False)
class Cut(OutOfFold, Ranker):
    """Answer each query with the documents of a ranking that are probably relevant: none, one or several.

    The first ``depth`` documents of the ranker are candidates. A model gives each a probability of being relevant, from
    its score, its rank, the gaps to its neighbours and to the first document, and the ranks and scores that it has in
    the rankers within. The model is learned from out-of-fold rankings of the training queries. A rule decides from the
    probabilities. The answer has the order and the scores of the ranker. Out of fold, a training query is answered by a
    model of the other folds, and by the threshold that is best for the queries of these; their probabilities are those
    of cross-validation, so that their models have learned from the query.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are the candidates.
    objective : {"micro-f1", "macro-f1", "precision", "recall"}, default "micro-f1"
        What the answers should have. For "micro-f1", one threshold of the probability maximises F1 over all pairs of
        query and document, as COLIEE counts it. For "macro-f1", each query gets the answer with the largest expected
        F1, which has at least one document, because the measure only counts queries with a relevant document. For
        "precision" and "recall", the threshold gives the ``target`` on training queries, with as many documents and as
        few as possible.
    target : float, optional
        The wanted precision or recall over all pairs, from 0 to 1.
    at_least_one : bool, default False
        Whether a query without a document above the threshold is answered with its most probable one.
    depth : int, default 100
        Number of candidates of each query.
    model : {"auto", "isotonic", "logistic", "trees", "mean"}, default "auto"
        The model of the probabilities: isotonic regression of the score, logistic regression, gradient boosted trees,
        or the mean of the log odds of the last two. "auto" takes the one with the smallest log loss in cross-validation
        over the training queries.
    n_queries : int, default 3000
        Largest number of training queries that the model is learned on; more are sampled at random.
    random_state : int, default 0
        Seed of the sample and of the folds.

    Attributes
    ----------
    decision_ : Decision
        The model and the rule.

    Examples
    --------
    >>> from haybale import BM25
    >>> Cut(BM25("document"), objective="precision", target=0.9)
    Cut(ranker=BM25(unit='document'), objective='precision', target=0.9)
    """

    name = "cut"
    variants: ClassVar = {"cut": {}}
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "objective": one_of(OBJECTIVES),
        "target": [*SHARE, None],
        "at_least_one": BOOLEAN,
        "depth": COUNT,
        "model": one_of(["auto", *MODELS]),
        "n_queries": COUNT,
        "random_state": RANDOM_STATE,
    }

    ranker: Ranker
    _: KW_ONLY
    objective: str = "micro-f1"
    target: float | None = None
    at_least_one: bool = False
    depth: int = 100
    model: str = "auto"
    n_queries: int = 3000
    random_state: int | None = 0

    def _check_params(self) -> None:
        """Check parameters as every ranker does; only a wanted precision or recall has a target."""
        super()._check_params()
        has_target = self.objective in ("precision", "recall")
        if has_target and self.target is None:
            raise InputError(f"objective={self.objective!r} needs a target, found none; give target=0.9, for example")
        if not has_target and self.target is not None:
            raise InputError(
                f"objective={self.objective!r} has no target, found target={self.target}; omit it, or choose "
                "objective='precision' or 'recall'"
            )

    @property
    def uses_vectors(self) -> bool:
        """False: only nested rankers use vectors."""
        return False

    @property
    def may_answer_nothing(self) -> bool:
        """Whether a query may have no document, although the ranker within finds some."""
        return not self.at_least_one and self.objective != "macro-f1"

    @property
    def _ranks_whole_batches(self) -> bool:
        """Whether the ranker within ranks whole batches; deciding is little work."""
        return self.rankers_[0]._ranks_whole_batches

    def fit_batch(self, training: Training) -> None:
        super().fit_batch(training.for_nested())
        settings = self.depth, self.model, self.n_queries, self.random_state
        key = "models of cut", self.rankers_[0]._cache_key(), *settings
        learned = training.cached_fit(key, lambda: self._learned(training))
        self.query_ids_, self.fold_of_ = learned.query_ids, learned.fold_of
        self.decision_ = Decision(learned.model, self._rule(learned.judged))
        self.fold_decisions_ = [
            Decision(model, self._rule(learned.judged.take(learned.fold_of != fold)))
            for fold, model in enumerate(learned.fold_models)
        ]
        self.report_: dict[str, Any] = {"training queries": len(learned.query_ids), "model": learned.model.kind}
        self.report_["log loss by cross-validation"] = learned.losses
        self.report_ |= _measured(self.decision_.rule, learned.judged, learned.ranks)
        self._warn_of_missed_target()

    def _learned(self, training: Training) -> _Learned:
        """Learn models of the probabilities from out-of-fold rankings of the training queries."""
        batch, rows = self._training_rows(training)
        relevant = [set(training.relevant[row]) for row in rows]
        run, part_runs = self._runs(batch, out_of_fold=True)
        features = candidate_features(run, part_runs, self._trained_parts())
        query, ranks, doc_ids, _ = run.flat()
        pairs = zip(query.tolist(), doc_ids.to_pylist(), strict=True)
        is_relevant = np.array([doc_id in relevant[row] for row, doc_id in pairs], dtype=bool)
        fold_of = batch.folds(_N_FOLDS, self.random_state)
        fold, n_usable = fold_of[query], len(np.unique(query[is_relevant]))
        outside = [fold != number for number in range(_N_FOLDS)]
        is_learnable = all(is_relevant[rows].any() and not is_relevant[rows].all() for rows in outside)
        if n_usable < _MIN_QUERIES or not is_learnable:
            raise InputError(
                f"{self} needs at least {_MIN_QUERIES} training queries with relevant documents among the first "
                f"{self.depth} of {self.ranker}, and irrelevant ones, found {n_usable}; judge more queries, or raise "
                "depth"
            )
        with batch.timed("learn probabilities"):
            tried: dict[str, Array] = {}
            fold_models = []
            for number, rows in enumerate(outside):
                fold_models.append(fit_models(self.model, features[rows], is_relevant[rows], ranks[rows]))
                for kind, model in fold_models[-1].items():
                    values = tried.setdefault(kind, np.zeros(len(query)))
                    values[fold == number] = model.probabilities(features[fold == number])
            losses = {kind: _log_loss(is_relevant, values) for kind, values in tried.items()}
            best = min(losses, key=lambda kind: losses[kind])
            final = MODELS[best].fit(features, is_relevant, ranks)
        offsets = np.searchsorted(query, np.arange(len(batch) + 1))
        judged = JudgedCandidates(offsets, tried[best], is_relevant, np.array(list(map(len, relevant))))
        return _Learned(batch.ids, fold_of, ranks, judged, final, [models[best] for models in fold_models], losses)

    def _training_rows(self, training: Training) -> tuple[QueryBatch, Ints]:
        """Return the queries to learn from, in the order of their ids, and their rows among the training queries."""
        ids, relevant = training.batch.ids, training.relevant
        judged = [row for row in self.learnable_rows(training).tolist() if relevant[row]]
        rows = np.array(sorted(judged, key=lambda row: ids[row]), dtype=np.int64)
        n_drawn = min(len(rows), self.n_queries)
        rows = rows[np.sort(np.random.default_rng(self.random_state).choice(len(rows), size=n_drawn, replace=False))]
        return training.batch.take(rows), rows

    def _rule(self, judged: JudgedCandidates) -> AnswerRule:
        return fitted_rule(self.objective, self.target, self.at_least_one, judged)

    def _warn_of_missed_target(self) -> None:
        """Warn if no threshold has the wanted precision or recall on the training queries."""
        reached = self.report_.get(f"{self.objective} by cross-validation")
        if self.target is not None and reached is not None and reached < self.target:
            advice = "raise depth or lower the target" if self.objective == "recall" else "lower the target"
            warnings.warn(
                f"{self}: expected {self.objective} {self.target}, found at most {reached:.3f} on the training "
                f"queries; {advice}",
                stacklevel=2,
            )

    def _parts(self) -> dict[str, Ranker]:
        """Return the rankers within the ranker, by name, each once."""
        return {str(part): part for part in self.rankers_[0].rankers_}

    def _trained_parts(self) -> list[str]:
        return [name for name, part in self._parts().items() if part.learns_documents]

    def _runs(self, batch: QueryBatch, *, out_of_fold: bool) -> tuple[Run, dict[str, Run]]:
        """Return the first documents of the ranker, and those of the rankers within it by name."""
        parts = self._parts()
        run, *part_runs = runs_of([self.rankers_[0], *parts.values()], batch, self.depth, out_of_fold=out_of_fold)
        return run, dict(zip(parts, part_runs, strict=True))

    def _decided(self, batch: QueryBatch, folds: Ints | None = None) -> Iterator[DecidedCandidates]:
        """Decide about the candidates of some queries at a time, so that memory is bounded.

        With ``folds`` (m,), a query is decided by the model of its fold, and by the final one for -1.
        """
        run, part_runs = self._runs(batch, out_of_fold=folds is not None)
        fold_of, trained = np.full(len(batch), -1) if folds is None else folds, self._trained_parts()
        for start in range(0, len(batch), _QUERIES_AT_ONCE):
            ids = batch.ids[start : start + _QUERIES_AT_ONCE]
            part = run.take(ids)
            features = candidate_features(part, {name: runs.take(ids) for name, runs in part_runs.items()}, trained)
            yield self._decided_by_folds(part, features, fold_of[start : start + len(ids)])

    def _decided_by_folds(self, run: Run, features: Array, fold_of: Ints) -> DecidedCandidates:
        """Decide about the candidates of a run with features (n, f), by the model of each query's fold (m,)."""
        query = run.coded()[0]
        probabilities, is_answer = np.zeros(len(query)), np.zeros(len(query), dtype=bool)
        for fold in np.unique(fold_of).tolist():
            decision = self.decision_ if fold < 0 else self.fold_decisions_[fold]
            rows = fold_of[query] == fold
            probabilities[rows] = decision.model.probabilities(features[rows])
            ends = np.cumsum(np.bincount(query[rows], minlength=len(fold_of)))
            is_answer[rows] = decision.rule.is_answer(np.append(0, ends), probabilities[rows])
        return DecidedCandidates(run, features, probabilities, is_answer)

    def _decided_once(self, batch: QueryBatch) -> DecidedCandidates:
        """Return the candidates of the only query of a batch, which its explanations share."""
        return batch.once(("decided", self._cache_key()), lambda: next(self._decided(batch)))

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        if len(batch) == 1:
            return self._decided_once(batch).answers(depth)
        return Run.joined([decided.answers(depth) for decided in self._decided(batch)])

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return Run.joined([decided.answers(depth) for decided in self._decided(batch, self.folds_of(batch.ids))])

    def probabilities(
        self,
        queries: QueriesLike,
        *,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
    ) -> pd.DataFrame:
        """Return the candidates of queries with their probabilities, in the order of the ranker within.

        Parameters
        ----------
        queries, within, where : optional
            As in :meth:`rank`.

        Returns
        -------
        pandas.DataFrame
            A row for each candidate, with the columns ``query_id``, ``doc_id``, ``rank`` (from 1) and ``score`` by the
            ranker within, ``probability``, and ``answer``: whether it belongs to the answer.
        """
        import pandas as pd

        frames = []
        batches = batches_of(self, queries, within=within, where=where)
        for decided in chain.from_iterable(map(self._decided, batches)):
            query, ranks, doc_ids, scores = decided.run.flat()
            columns = {
                "query_id": np.asarray(decided.run.query_ids, dtype=object)[query],
                "doc_id": np.asarray(doc_ids.to_pylist(), dtype=object),
                "rank": ranks,
                "score": scores,
                "probability": decided.probabilities,
                "answer": decided.is_answer,
            }
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain as every ranker does; for a document that is not in the answer, notes say why."""
        explanation = super().explained(batch, document)
        if explanation.rank is not None:
            return explanation
        return replace(explanation, notes=list(self._reasons(batch, explanation.doc_id)))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        inner = self.rankers_[0].explained(batch, document)
        share = Share(f"{inner.ranker}, rank {inner.rank:,}", base.score or 0.0, of=inner)
        return replace(base, shares=[share], notes=list(self._reasons(batch, base.doc_id)))

    def _reasons(self, batch: QueryBatch, doc_id: str) -> Iterator[str]:
        """Yield notes that say whether a document belongs to the answer, why, and what the next document is."""
        decided, decision = self._decided_once(batch), self.decision_
        doc_ids, probabilities = decided.run.flat()[2].to_pylist(), decided.probabilities
        if doc_id not in doc_ids:
            yield f"not among the first {self.depth:,} documents of {self.rankers_[0]}"
            return
        row = doc_ids.index(doc_id)
        is_answer = bool(decided.is_answer[row])
        answer = "in the answer" if is_answer else "not in the answer"
        yield f"{answer}: probability {probabilities[row]:.3f} ({decision.model.kind}); {self._rule_text(decided)}"
        names = candidate_feature_names(list(self._parts()), self._trained_parts())
        shares = decision.model.shares(decided.features[row : row + 1])[0, :-1]
        largest = np.argsort(-np.abs(shares), kind="stable")[:_FEATURES_NAMED]
        moved = [
            f"{names[column]} {decided.features[row, column]:.3g} ({shares[column]:+.2f})"
            for column in largest.tolist()
            if shares[column]
        ]
        if moved:
            yield f"features that moved its log odds most: {', '.join(moved)}"
        others = np.flatnonzero(decided.is_answer != is_answer)
        if is_answer and len(others):
            following = others[np.argmax(probabilities[others])]
            yield f"most probable document outside: {doc_ids[following]}, probability {probabilities[following]:.3f}"
        elif len(others):
            last = others[np.argmin(probabilities[others])]
            yield f"least probable document of the answer: {doc_ids[last]}, probability {probabilities[last]:.3f}"

    def _rule_text(self, decided: DecidedCandidates) -> str:
        """Return what the rule asks for, for the only query of a batch."""
        rule, n = self.decision_.rule, int(decided.is_answer.sum())
        documents = f"{n:,} document{'' if n == 1 else 's'}"
        if rule.objective == "macro-f1":
            expected = expected_f1(np.sort(decided.probabilities)[::-1])
            text = f"the {documents} of the answer have an expected F1 of {expected[n - 1]:.3f}"
            return text + (f", one more would have {expected[n]:.3f}" if n < len(expected) else "")
        wanted = rule.objective if self.target is None else f"{rule.objective} {self.target:g}"
        only = rule.at_least_one and n == 1 and decided.probabilities[decided.is_answer][0] < rule.threshold
        return f"{wanted} needs {rule.threshold:.3f}" + (", or the most probable document" if only else "")

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        decisions = [self.decision_, *self.fold_decisions_]
        tensors = {
            f"{number} {name}": array
            for number, decision in enumerate(decisions)
            for name, array in decision.model.arrays().items()
        }
        write_tensors(folder / _TENSORS, tensors)
        return {"rules": [asdict(decision.rule) for decision in decisions], "report": self.report_}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.read_folds(folder)
        self.report_ = dict(state["report"])
        tensors, kind = read_tensors(folder / _TENSORS), self.report_["model"]
        decisions = []
        for number, rule in enumerate(state["rules"]):
            begin = f"{number} "
            arrays = {name.removeprefix(begin): array for name, array in tensors.items() if name.startswith(begin)}
            decisions.append(Decision(MODELS[kind].from_arrays(arrays), AnswerRule(**rule)))
        self.decision_, self.fold_decisions_ = decisions[0], decisions[1:]

    @property
    def fit_report_(self) -> dict[str, Any]:
        return self.report_ | self.twins_.report


def _log_loss(is_relevant: Mask, probabilities: Array) -> float:
    return float(-np.log(np.where(is_relevant, probabilities, 1 - probabilities)).mean())


def _measured(rule: AnswerRule, judged: JudgedCandidates, ranks: Ints) -> Mapping[str, Any]:
    """Return measures of the rule on the training queries by cross-validation, and those of the best fixed depth."""
    macro = rule.objective == "macro-f1"
    answers = _f1_precision_recall(judged, rule.is_answer(judged.offsets, judged.probabilities))
    depths = {n: _f1_precision_recall(judged, ranks <= n) for n in range(1, _MAX_FIXED_DEPTH + 1)}
    f1 = "macro-f1" if macro else "micro-f1"
    best = max(depths, key=lambda n: depths[n][f1])
    threshold = {} if macro else {"threshold": rule.threshold}
    measures = {f"{name} by cross-validation": value for name, value in answers.items()}
    return threshold | measures | {"best fixed depth": best, f"{f1} of the best fixed depth": depths[best][f1]}


def _f1_precision_recall(judged: JudgedCandidates, is_answer: Mask) -> dict[str, float]:
    """Return F1, precision and recall over all pairs of query and document, and the mean F1 of the queries."""
    query = np.repeat(np.arange(len(judged.n_relevant)), np.diff(judged.offsets))
    n_right = np.bincount(query, is_answer & judged.is_relevant, minlength=len(judged.n_relevant))
    n_answers = np.bincount(query, is_answer, minlength=len(judged.n_relevant))
    both = n_answers + judged.n_relevant
    return {
        "micro-f1": float(2 * n_right.sum() / both.sum()),
        "precision": float(n_right.sum() / max(1.0, n_answers.sum())),
        "recall": float(n_right.sum() / judged.n_relevant.sum()),
        "macro-f1": float((2 * n_right / both).mean()),
    }
