"""The rankers ``lim``, ``mim`` and ``mix-im``: passages in context, by graph attention over their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.collections.collection import Ints, ragged_take
from haybale.context.candidates import (
    BestPassage,
    JudgedDocuments,
    QueryCandidates,
    Scores,
    best_passages,
    judged_documents,
)
from haybale.context.engine_graph import graph_of, node_share
from haybale.context.masks import hidden_links, relevant_by_own
from haybale.context.network_folds import KINDS, RANGES, NetworkFolds
from haybale.context.surroundings import EdgeSurroundings, PathSurroundings
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, one_of
from haybale.rankers import Explanation, OutOfFold, QueryBatch, Ranker, Share, Training
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Run
from haybale.search.explanation import by_size
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.context.networks.network_training import Scored

_PASSAGES_PER_PASS = 2048  # passages of one forward pass


@dataclass(eq=False, repr=False)
class GraphContext(BestPassage, OutOfFold, Reranker):
    """Re-rank by graph attention over the dense vectors of passages and titles: LiM, MiM and Mix-iM.

    ``lim`` scores a passage p by (1 − λ) · q·p + λ · q·CGAT(p). CGAT, context-only graph attention, reads the
    neighbours of p but not p. ``mix-im`` replaces CGAT(p) by GAT(p), which also reads p. ``mim`` scores by q·GAT(p)
    alone. λ is learned, and a document scores by its best passage.

    The method is that of Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks",
    ECIR 2022; the layers are in :mod:`haybale.context.networks.attention`. The paper learns from relevant paragraphs.
    Here the judgements are of documents, so the best passage of a relevant document is its positive, chosen again in
    each epoch. The negatives are documents with high scores. Needs the extra ``neural``.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    kind : {"lim", "mim", "mix-im"}, default "lim"
        The formula of the score.
    setting : {"paths", "paper"}, default "paths"
        "paths" uses one layer of attention over the means of ten relation paths (:data:`~haybale.context.PATHS`) and a
        listwise loss, −log softmax of a relevant document among its negatives. "paper" uses the paper's three layers
        over the neighbours by eight relations, and its pairwise loss, −log σ(s⁺ − s⁻).
    heads : int, default 4
        Number of attention heads; must divide the width of the vectors.
    context_query : {"content", "type"}, default "content"
        The attention query of a passage: its vector, or one learned vector for all passages.
    dropout : float, default 0.1
        Share of attention weights that are dropped in training.
    epochs, batch_size : int, default 8 and 32
        Number of passes over the training queries, and of queries in a batch.
    n_negatives, n_train : int, default 15 and 60
        Number of negatives of each query, and of documents with the highest scores that they are sampled from.
    learning_rate, weight_decay : float, default 0.001 and 1
        Parameters of AdamW. λ, the weights of relations and the scale of scores learn ten times as fast.
    n_queries : int, default 3000
        Maximum number of training queries; a larger set is sampled.
    n_documents, mask : optional
        As for :class:`LinearContext`.
    device : str, optional
        Torch device, default the CPU.
    random_state : int, default 0
        Seed of the folds, the samples and the training.
    """

    name = "graph-context"
    variants: ClassVar = {kind: {"kind": kind} for kind in KINDS} | {
        f"{kind}-paper": {"kind": kind, "setting": "paper"} for kind in KINDS
    }
    _parameter_constraints: ClassVar = {
        **RANGES,
        "setting": one_of(["paths", "paper"]),
        "n_train": COUNT,
        "context_query": one_of(["content", "type"]),
    }

    ranker: Ranker
    _: KW_ONLY
    kind: str = "lim"
    setting: str = "paths"
    heads: int = 4
    context_query: str = "content"
    dropout: float = 0.1
    epochs: int = 8
    batch_size: int = 32
    n_negatives: int = 15
    n_train: int = 60
    learning_rate: float = 1e-3
    weight_decay: float = 1.0
    n_queries: int = 3000
    n_documents: int = 1000
    mask: str = "own"
    device: str | None = None
    random_state: int | None = 0

    def fit_batch(self, training: Training) -> None:
        import_optional("torch", "neural")
        dim = self._dim(training.engine)
        if dim % self.heads:
            raise InputError(f"heads must divide the width of the vectors, {dim}, found {self.heads}")
        self.rankers_ = [self.ranker._fitted_copy(training.for_nested())]
        self.mask_ = relevant_by_own(self, training)
        judged = judged_documents(self, training)
        self._contexts: tuple[Collection, dict[int, Floats]] | None = None
        self.networks_ = NetworkFolds(dim, self, judged)

    def _dim(self, engine: Engine) -> int:
        """Return the width of the engine's vectors, which must be dense."""
        vectors = graph_of(engine).vectors
        if vectors.is_sparse:
            raise InputError(f"{self} needs dense vectors; build the engine with encoder 'lsa' or a neural one")
        return int(vectors.passages.shape[1])

    @property
    def _surroundings_type(self) -> type[PathSurroundings] | type[EdgeSurroundings]:
        return PathSurroundings if self.setting == "paths" else EdgeSurroundings

    def _surroundings(self, engine: Engine) -> PathSurroundings | EdgeSurroundings:
        return self._surroundings_type(engine, hidden_links(self, engine), context_only=self.kind == "lim")

    def new_network(self, dim: int) -> Any:
        from haybale.context.networks.attention import ContextNetwork

        shape = dim, len(self._surroundings_type.relations), self._surroundings_type.n_layers, self.heads, self.dropout
        return ContextNetwork(*shape, blind=self.context_query == "type").to(self.device or "cpu")

    def training_batches(self, judged: JudgedDocuments) -> Callable[[Any, int, np.random.Generator], Iterator[Scored]]:
        return partial(self._batches, judged)

    def _batches(self, judged: JudgedDocuments, network: Any, fold: int, rng: np.random.Generator) -> Iterator[Scored]:
        """Yield the scored batches of one epoch: the positives and sampled negatives of queries outside the fold."""
        import torch

        query_rows = np.unique(judged.rows[judged.relevant])
        query_rows = query_rows[self.fold_of_[query_rows] != fold]
        if not len(query_rows):
            return

        surroundings, batch = self._surroundings(judged.batch.engine), judged.batch
        queries = np.asarray(batch.vectors, dtype=np.float32)
        passages, begins = ragged_take(batch.engine.passages.doc_offsets, judged.documents)
        needed, columns = np.unique(passages, return_inverse=True)
        own_share, context_share = self._weights(network).tolist()
        vectors = context_share * self._in_context(network, surroundings, needed)
        vectors += own_share * surroundings.values[needed]
        order = rng.permutation(query_rows)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            products, examples = queries[rows] @ vectors.T, []
            for row, row_products in zip(rows.tolist(), products, strict=True):
                of = judged.of(row)
                first, end = begins[of.start], begins[of.stop]
                scores = row_products[columns[first:end]]
                best = best_passages(scores, begins[of.start : of.stop + 1] - first)
                chosen = self._sample(scores[best], judged.relevant[of], rng)
                relevant = judged.relevant[of][chosen]
                examples.append((np.full(len(chosen), row), passages[first + best[chosen]], relevant))
            query, passage, relevant = (np.concatenate(column) for column in zip(*examples, strict=True))
            values, around = surroundings.read(passage, batch.own[query])
            in_context = network(values, around)[0][around.targets]
            query_vectors = torch.from_numpy(queries[query]).to(in_context)
            scores = (in_context * query_vectors).sum(1)
            if self.kind != "mim":
                passage_vectors = torch.from_numpy(surroundings.values[passage]).to(in_context)
                scores = network.share * scores + (1 - network.share) * (passage_vectors * query_vectors).sum(1)
            yield scores, np.unique(query, return_inverse=True)[1], relevant

    def _sample(self, scores: Scores, relevant: NDArray[np.bool_], rng: np.random.Generator) -> Ints:
        """Return the relevant documents of a query, and negatives sampled from the others with the highest scores."""
        others = np.flatnonzero(~relevant)
        others = others[np.argsort(-scores[others], kind="stable")[: self.n_train]]
        drawn = rng.choice(others, size=min(self.n_negatives, len(others)), replace=False)
        return np.concatenate([np.flatnonzero(relevant), drawn])

    def _in_context(
        self, network: Any, surroundings: PathSurroundings | EdgeSurroundings, passages: Ints, own_document: int = -1
    ) -> Floats:
        """Return (n, d) passages in context, for a query taken from document ``own`` (-1 for none)."""
        import torch

        out = np.empty((len(passages), surroundings.values.shape[1]), dtype=np.float32)
        training = network.training
        network.eval()
        with torch.no_grad():
            for start in range(0, len(passages), _PASSAGES_PER_PASS):
                values, around = surroundings.read(passages[start : start + _PASSAGES_PER_PASS], own_document)
                out[start : start + _PASSAGES_PER_PASS] = network(values, around)[0][around.targets].cpu().numpy()
        network.train(training)
        return out

    def context_vectors(self) -> Floats:
        """Return GAT(p) (n_passages, d) of all passages, CGAT(p) for "lim", with no links hidden."""
        self._check_fitted()
        return self._cached_contexts(self.engine_.snapshot(), -1).copy()

    def _cached_contexts(self, engine: Engine, fold: int) -> Floats:
        """Return :meth:`context_vectors` of the network of a fold, computed once for the engine's present documents."""
        contexts = self._contexts  # another thread, on another snapshot, may replace it
        if contexts is None or contexts[0] is not engine.collection:
            contexts = self._contexts = engine.collection, {}
        cached = contexts[1]
        if fold not in cached:
            surroundings = self._surroundings(engine)
            passages = np.arange(surroundings.graph.n_passages)
            cached[fold] = self._in_context(self.networks_[fold], surroundings, passages)
        return cached[fold]

    def _weights(self, network: Any) -> Scores:
        """Return the weights (2,) of the products of the query with a passage and with the passage in context."""
        share = 1.0 if self.kind == "mim" else float(network.share.detach())
        return np.array([1 - share, share])

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        passages, network = candidates.passages, self.networks_[fold]
        contexts = self._cached_contexts(batch.engine, fold)[passages]
        surroundings = self._surroundings(batch.engine)
        if surroundings.mask is not None and candidates.own >= 0:
            changed = surroundings.changed(passages, candidates.own)
            if changed.any():
                contexts[changed] = self._in_context(network, surroundings, passages[changed], candidates.own)
        products = contexts @ np.asarray(batch.vectors[candidates.row], dtype=np.float32)
        passage_scores: Scores = np.stack([candidates.scores[passages], products], axis=1) @ self._weights(network)
        return passage_scores

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself and of its neighbours; the last layer is linear in these."""
        import torch

        candidates, passage = self.best_passage(batch, document)
        engine, network, itself, shares = batch.engine, self.networks_[-1], np.array([passage]), []
        own_share, context_share = self._weights(network).tolist()
        if self.kind != "mim":
            shares.append(node_share(engine, itself, own_share * float(candidates.scores[passage])))
        surroundings, layer = self._surroundings(engine), network.layers[-1]
        with torch.no_grad():
            values, around = surroundings.read(itself, candidates.own)
            _, read, alpha = network(values, around)
            query = torch.from_numpy(np.asarray(batch.vectors[candidates.row], dtype=np.float32)).to(read)
            rest = float(query @ read[0])  # contribution of the passage itself
            for layer_edge, edge in enumerate(np.flatnonzero(around.target < around.sizes[0]).tolist()):
                relation = int(around.relation[edge])
                projected = layer.query_projection(relation, alpha[layer_edge], query)
                if surroundings.relations[relation] == "itself":
                    rest += float(projected @ read[around.source[edge]])
                    continue
                sources = surroundings.edge_sources(passage, candidates.own, around, edge, read.cpu().numpy())
                for nodes, vector in sources:
                    value = context_share * float(projected.cpu().numpy() @ vector)
                    shares.append(node_share(engine, nodes, value, surroundings.relations[relation]))
        if self.kind != "lim":
            shares.append(node_share(engine, itself, context_share * rest, "itself"))
        return by_size(shares)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return self.networks_.save(folder) | {"mask": self.mask_}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        import_optional("torch", "neural")
        self.read_folds(folder)
        self.mask_, self._contexts = state["mask"], None
        self.networks_ = NetworkFolds.load(folder, state, self)

    @property
    def fit_report_(self) -> dict[str, Any]:
        unused = self.kind == "lim" and self.setting == "paths"  # no passage attends to itself
        relations = self._surroundings_type.relations[:-1] if unused else self._surroundings_type.relations
        return {"training queries": len(self.query_ids_)} | self.networks_.report(relations) | self.twins_.report
