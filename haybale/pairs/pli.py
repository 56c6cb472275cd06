"""The ranker ``pli``: BERT-PLI over the interactions between the paragraphs of a query and a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from haybale.embeddings import LSAEncoder
from haybale.embeddings.encoder import load_fitted
from haybale.engine import Engine
from haybale.engine.workers import Workers
from haybale.errors import InputError
from haybale.pairs.bert_pli import BERTPLI, PAPER
from haybale.pairs.best_pairs import paragraph_share
from haybale.pairs.fold_networks import train_folds
from haybale.pairs.interaction_store import InteractionStore
from haybale.pairs.interactions import READING, Interactions, Reading, settings_of
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs, PairEncoder, VectorPairs
from haybale.parameters import SEQUENCE, TEXT_OR_NONE, Interval
from haybale.rankers.reranker import Reranker
from haybale.ranking.out_of_fold import OutOfFold, learned_once
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch

_LSA_COMPONENTS, _MAX_FIT_TEXTS = 128, 250_000  # of the LSA encoder that replaces a sparse encoder
_NETWORK_PARAMETERS = tuple(name for name in BERTPLI._parameter_constraints if name != "device")


@dataclass(eq=False, repr=False)
class PLI(OutOfFold, Reranker):
    """Re-rank the first documents of another ranker by BERT-PLI, trained on judged queries.

    :class:`~haybale.BERTPLI` has the formulas and their sources. Out of fold, a network that was trained on the other
    folds ranks a training query. Queries taken from one document are in the same fold.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    model : str, optional
        Hub id or folder of a transformer that reads pairs of paragraphs. Default: no transformer but products of the
        engine's passage vectors. If these are sparse, products of vectors of 128 LSA components fitted on the passages.
    read, max_length, precision, device : optional
        As for :class:`~haybale.CrossPairs`.
    n_documents : int, default 50
        Number of documents that are re-ranked for each query; the paper's K.
    n, m, select : optional
        As for :class:`~haybale.Reading`, but ``select`` is ``"best"`` by default, and ``"first"`` in ``pli-paper``.
    cell, hidden, variant, loss, residual, n_seeds, epochs, learning_rate : optional
    weight_decay, batch_size, held_out, random_state : optional
        As for :class:`~haybale.BERTPLI`; ``pli-paper`` has the authors' values.
    n_folds : int, default 5
        Number of folds of the training queries, for :meth:`out_of_fold`.
    store : str or sequence of str, optional
        Stores that ``haybale interactions`` or :func:`~haybale.interact` wrote. Blocks in them are not encoded again.
    """

    name = "pli"
    variants: ClassVar = {"pli": {}, "pli-paper": {**PAPER, "select": "first"}}
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "model": TEXT_OR_NONE,
        **{name: PAIR_RANGES[name] for name in ("read", "max_length", "precision", "device")},
        "n_documents": READING["k"],
        **{name: READING[name] for name in ("n", "m", "select")},
        **{name: BERTPLI._parameter_constraints[name] for name in _NETWORK_PARAMETERS},
        "n_folds": [Interval(Integral, 2, 1000, closed="both")],
        "store": [*TEXT_OR_NONE, *SEQUENCE],
    }

    ranker: Ranker
    model: str | None = None
    _: KW_ONLY
    read: str = "pooler"
    max_length: int | None = None
    precision: str = "auto"
    device: str | None = None
    n_documents: int = 50
    n: int | None = None
    m: int | None = None
    select: str = "best"
    cell: str = "gru"
    hidden: int = 64
    variant: str = "masked"
    loss: str = "listwise"
    residual: bool = True
    n_seeds: int = 3
    epochs: int = 10
    learning_rate: float = 2e-4
    weight_decay: float = 1e-4
    batch_size: int = 64
    held_out: float = 0.2
    n_folds: int = 5
    store: str | Sequence[str] | None = None
    random_state: int | None = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The model that reads pairs of paragraphs, if one is given."""
        return () if self.model is None else (self.model,)

    def pairs(self, engine: Engine) -> PairEncoder:
        """Return the pair encoder, which is loaded or fitted once."""
        if not hasattr(self, "_pairs"):
            self._pairs = self._load_pairs(engine)
        return self._pairs

    def _load_pairs(self, engine: Engine) -> PairEncoder:
        if self.model is not None:
            how: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision, "device": self.device}
            return CrossPairs(self.model, read=self.read, **how)
        if not engine.passages.is_sparse:
            return VectorPairs(engine.encoder, engine)
        if not hasattr(self, "encoder_"):
            lsa = LSAEncoder(_LSA_COMPONENTS, language=None, analyzer=engine.analyzer, max_fit_texts=_MAX_FIT_TEXTS)
            self.encoder_ = lsa.fit(engine.collection.passages.texts)
        return VectorPairs(self.encoder_)

    def reading(self, batch: QueryBatch, first: Run, pairs: PairEncoder) -> Reading:
        """Return the reading of the candidates in the run ``first``: the pairs of paragraphs that are encoded."""
        vectors = batch.paragraph_vectors if self.select == "best" else None
        how: dict[str, Any] = {"k": self.n_documents, "n": self.n, "m": self.m, "select": self.select}
        return Reading(batch.engine, batch.queries, first, pairs, **how, vectors=vectors)

    def fit_batch(self, training: Training) -> None:
        for name in ("_pairs", "encoder_", "fold_networks_"):  # attributes of an earlier fit
            self.__dict__.pop(name, None)
        batch = training.batch
        folds = min(self.n_folds, len(np.unique(batch.groups)))
        if folds < 2:
            raise InputError(f"{self} needs training queries of at least 2 documents, found {folds}")
        pairs = self.pairs(batch.engine)  # raises for a missing model before the ranker within is fitted
        stored = self._stored(settings_of(batch.engine, pairs, self.n, self.m, self.select))
        self.rankers_ = [self.ranker._fitted_copy(training.for_nested())]
        rows = self.learnable_rows(training)
        relevant = {batch.ids[row]: training.relevant[row] for row in rows if training.relevant[row]}
        batch = batch.take(rows) if len(rows) < len(batch) else batch
        first = self.rankers_[0].run(batch, self.n_documents, out_of_fold=True)
        self._interaction_sources = stored
        with batch.timed(f"read pairs ({self.name})"):
            interactions = self._interactions(self.reading(batch, first, pairs))
        with batch.timed(f"fit {self.name}"):
            self.network_ = self._network().fit(interactions, relevant)
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(folds, self.random_state)
        self._interaction_sources = [_IndexedInteractions(interactions), *stored]
        self._training_data = batch.engine, interactions, relevant
        if Workers(batch.engine).divide:
            _ = self.fold_networks_

    def _network(self) -> BERTPLI:
        return BERTPLI(**{name: getattr(self, name) for name in _NETWORK_PARAMETERS}, device=self.device)

    @learned_once
    def fold_networks_(self) -> list[BERTPLI | None]:
        """The networks trained without each fold; None if the other folds cannot train one.

        They are trained by tasks, and on first use unless tasks run in other processes or their results are kept.
        """
        networks = train_folds(self._network(), *self._training_data, self.query_ids_, self.fold_of_)
        del self._training_data
        return networks

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Any:
        ids = batch.engine.collection.doc_ids
        first = Run.from_numbers(batch.ids, ids, rows, documents, scores, self.n_documents)
        interactions = self._interactions(self.reading(batch, first, self.pairs(batch.engine)))
        if not out_of_fold:
            return self.network_.score(interactions)
        folds, result = self.folds_of(interactions.blocks["query_id"].tolist()), np.empty(len(interactions))
        for fold in np.unique(folds):
            network, mine = self.network_ if fold < 0 else self.fold_networks_[fold], np.flatnonzero(folds == fold)
            if network is None:
                query = interactions.blocks["query_id"].iloc[mine[0]]
                raise InputError(f"{self} cannot learn without the fold of {query!r}; add judged queries")
            result[mine] = network.score(interactions.take(mine))
        return result

    def _interactions(self, reading: Reading) -> Interactions:
        """Return the blocks of a reading, from memory or a store if possible; encode the others."""
        blocks, parts, order = reading.blocks, [], []
        wanted = np.ones(len(blocks), dtype=bool)
        for source in self._interaction_sources:
            numbers = source.find(blocks)
            in_source = np.flatnonzero((numbers >= 0) & wanted)
            wanted[in_source] = False
            if len(in_source):
                parts.append(source.read(numbers[in_source]))
                order.append(in_source)
        for chunk in reading.chunks():
            new = chunk[wanted[chunk]]
            if len(new):
                parts.append(reading.read(new))
                order.append(new)
        joint = Interactions.joined(parts).take(np.argsort(np.concatenate(order)))
        return replace(joint, blocks=blocks, settings=reading.settings)  # with the ranks and scores of this run

    def _stored(self, settings: dict[str, Any]) -> list[_IndexedInteractions]:
        """Open the stores; raise :class:`InputError` if their settings differ."""
        paths = [self.store] if isinstance(self.store, str) else self.store or ()
        stores = [InteractionStore(path) for path in paths]
        for store in stores:
            for name, value in settings.items():
                if (stored := store.settings.get(name)) != value:
                    raise InputError(f"{store.path}: {self} needs interactions with {name} {value!r}, found {stored!r}")
        return [_IndexedInteractions(store) for store in stores]

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        rows, ranks, documents = first.numbers_in(batch.engine.collection)
        read = self._is_read(batch, ranks, documents)
        ids, scores = batch.engine.collection.doc_ids, first.coded()[-1][read]
        kept = Run.from_numbers(batch.ids, ids, rows[read], documents[read], scores, self.n_documents)
        reading = self.reading(batch, kept, self.pairs(batch.engine))
        numbers = np.flatnonzero(reading.blocks["doc_id"] == str(ids[document].as_py()))
        block = reading.read(numbers)
        of_first, of_rows = self.network_.shares(block)
        shares = [
            paragraph_share(batch, document, int(paragraph), int(passage), float(share))
            for paragraph, passage, share in zip(block.paragraphs, block.passages, of_rows, strict=False)
        ]
        if self.variant == "paper":
            shares.append(Share("paragraphs that are missing", float(of_rows[-1])))
        if self.residual:
            rank = int(reading.blocks["rank"].iloc[numbers[0]])
            shares.append(Share(f"{self.rankers_[0]}, rank {rank:,}", float(of_first[0]), of=inner))
        return by_size(shares)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.network_.save(folder / "network")
        for fold, network in enumerate(self.fold_networks_):
            if network is not None:
                network.save(folder / "folds" / str(fold))
        if hasattr(self, "encoder_"):
            self.encoder_.save(folder / "encoder")
        self.write_folds(folder)
        return {"folds": [network is not None for network in self.fold_networks_]}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.network_ = BERTPLI.load(folder / "network")
        saved = enumerate(state["folds"])
        self.fold_networks_ = [BERTPLI.load(folder / "folds" / str(fold)) if has else None for fold, has in saved]
        if (folder / "encoder").exists():
            self.encoder_ = load_fitted(folder / "encoder")
        self.read_folds(folder)
        self._interaction_sources = self._stored(self.network_.settings_)

    @property
    def fit_report_(self) -> dict[str, Any]:
        network = self.network_
        report = {
            "training queries": network.n_queries_,
            "candidates": network.n_blocks_,
            "relevant": network.n_relevant_,
        }
        losses = np.mean(network.losses_, axis=0)
        of_epochs = {"loss of the first epoch": float(losses[0]), "loss of the last": float(losses[-1])}
        return report | of_epochs | self.twins_.report


class _IndexedInteractions:
    """Interactions in memory or in a store, indexed by query, document and a digest of their texts."""

    def __init__(self, source: Interactions | InteractionStore) -> None:
        self._source = source
        columns = zip(*(source.blocks[name] for name in ("query_id", "doc_id", "texts")), strict=True)
        self._number_of_block = {key: number for number, key in enumerate(columns)}

    def find(self, blocks: Any) -> Ints:
        """Return the number (n_blocks,) of each block in the source, -1 if it is not there."""
        columns = zip(*(blocks[name] for name in ("query_id", "doc_id", "texts")), strict=True)
        return np.array([self._number_of_block.get(key, -1) for key in columns], dtype=np.int64)

    def read(self, numbers: Ints) -> Interactions:
        source = self._source
        interactions = source.take(numbers) if isinstance(source, Interactions) else source.read(numbers)
        return replace(interactions, values=interactions.values.astype(np.float32, copy=False))
