"""Graph attention over token matrices as a ranker, scored by late interaction, as the paper has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.collections.collection import Ints, indptr_from_counts, ragged_take
from haybale.context.candidates import (
    QueryCandidates,
    Scores,
    best_hits,
    best_passage,
    best_passages,
    document_scores,
    judged_documents,
    query_candidates,
)
from haybale.context.document_graph import RELATIONS
from haybale.context.engine_graph import graph_of, node_share
from haybale.context.masks import hidden_links, relevant_by_own
from haybale.context.neighbourhoods import SELF, Neighbourhoods, neighbourhoods
from haybale.context.network_folds import KINDS, RANGES, NetworkFolds
from haybale.embeddings.torch_models import late_interaction
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, Interval
from haybale.rankers import Explanation, OutOfFold, QueryBatch, Ranker, Share, Training
from haybale.rankers.explanation import by_size
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Hits, Run
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.context.networks.learning import Scored


_KEPT = 2**28  # numbers kept for nodes: 512 MiB of float16
_BLOCK = 64  # queries of a batch that are encoded together


class _Example(NamedTuple):
    """A training query, and the passages that are read of its documents."""

    row: int
    own: int
    tokens: Floats
    passages: Ints
    begins: Ints  # (n + 1,)
    relevant: NDArray[np.bool_]  # (n,)


class _Reading(NamedTuple):
    """Passages in context, as tensors."""

    parts: Any  # (c, 2) MaxSim of the query with the passages, and with the passages in context
    messages: Any  # (e, t, dim) what each edge adds in the last layer
    nearest: Any  # (c, q) each query token's nearest token in context
    around: Neighbourhoods


@dataclass(eq=False, repr=False)
class TokenContext(OutOfFold, Reranker):
    """Re-rank by passages in context over token matrices, scored by MaxSim: LiM, MiM and Mix-iM as in the paper.

    The scores are those of :class:`GraphContext`, but a node is a matrix with a vector for each token, and the tokens
    of a passage attend to the tokens of its neighbours by the eight relations of the graph. Only the passages that are
    read and their neighbourhoods are encoded, when they are first needed. The encoder is not trained. Needs the extra
    ``neural``.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ordered.
    model : str
        Hub id or folder that ``MultiVectorEncoder`` of sentence-transformers loads: a late-interaction model, or any
        text model, whose token vectors are then used.
    kind : {"lim", "mim", "mix-im"}, default "lim"
    n_documents, n_passages : int, default 20 and 3
        Number of documents of each query that are read, and of passages of each: the nearest by the engine's vectors.
    layers, heads : int, default 1 and 4
        Number of layers (the paper has 3), and of attention heads.
    dropout, learning_rate, weight_decay, mask, device, random_state : as for GraphContext
        The defaults are those of :class:`GraphContext` too.
    epochs, batch_size : int, default 3 and 8
        Number of epochs, and of queries in a batch.
    n_negatives : int, default 7
        Number of negatives drawn for a training query, from the documents that are read.
    n_queries : int, default 1000
        Largest number of training queries; of more, so many are drawn at random.
    query_length, passage_length : int, default 120 and 180
        Largest number of tokens.
    """

    name = "token-context"
    variants: ClassVar = {f"token-{kind}": {"kind": kind} for kind in KINDS}
    removed_parameters: ClassVar = {"residual": True, "loss": "listwise"}
    _parameter_constraints: ClassVar = {
        **RANGES,
        "model": [str],
        **dict.fromkeys(("n_passages", "layers"), COUNT),
        "query_length": [Interval(Integral, 4, 10**6, closed="both")],
        "passage_length": [Interval(Integral, 4, 10**6, closed="both")],
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    kind: str = "lim"
    n_documents: int = 20
    n_passages: int = 3
    layers: int = 1
    heads: int = 4
    dropout: float = 0.1
    epochs: int = 3
    batch_size: int = 8
    n_negatives: int = 7
    learning_rate: float = 1e-3
    weight_decay: float = 1.0
    n_queries: int = 1000
    query_length: int = 120
    passage_length: int = 180
    mask: str = "own"
    device: str | None = None
    random_state: int | None = 0

    @cached_property
    def _tokens(self) -> TokenMatrices:
        return TokenMatrices(self.model, self.query_length, self.passage_length)

    def fit_batch(self, training: Training) -> None:
        if self._tokens.dim % self.heads:
            raise InputError(f"heads: {self.heads} heads do not divide token vectors of width {self._tokens.dim}")
        _ = graph_of(training.batch.engine)  # raises before any work where there is no graph
        self.rankers_ = [self.ranker.fitted(training)]
        self.mask_ = relevant_by_own(self, training)
        judged = judged_documents(self, training)
        examples = []
        for each in query_candidates(judged.batch, judged.rows, judged.documents):
            relevant = judged.relevant[judged.of(each.row)]
            if relevant.any():
                places, begins = self._nearest(each)
                tokens = self._tokens.of_query(judged.batch, each.row)
                examples.append(_Example(each.row, each.own, tokens, each.passages[places], begins, relevant))
        epoch = partial(self._epoch, judged.batch.engine, examples)
        self.networks_ = NetworkFolds(partial(self._untrained, self._tokens.dim), self, epoch)

    def _nearest(self, candidates: QueryCandidates) -> tuple[Ints, Ints]:
        """Return the places of the passages that are read, and where those of each document begin."""
        scores = candidates.scores[candidates.passages]
        chosen = [
            start + np.sort(np.argsort(-scores[start:end], kind="stable")[: self.n_passages])
            for start, end in pairwise(candidates.begins.tolist())
        ]
        return np.concatenate(chosen), indptr_from_counts([len(each) for each in chosen])

    def _untrained(self, dim: int) -> Any:
        from haybale.context.networks.attention import ContextNetwork
        from haybale.context.networks.token_attention import TokenAttention

        shape = dim, SELF + 1, self.layers, self.heads, self.dropout
        return ContextNetwork(*shape, layer=TokenAttention, scale=1.0).to(self.device or "cpu")

    def _epoch(
        self, engine: Engine, examples: list[_Example], network: Any, fold: int, rng: np.random.Generator
    ) -> Iterator[Scored]:
        """Iterate over batches of queries: each one's relevant documents and drawn others, by their best passages."""
        import torch

        teaching = [each for each in examples if self.fold_of_[each.row] != fold]
        order = rng.permutation(len(teaching))
        for start in range(0, len(order), self.batch_size):
            scores, numbers, relevant = [], [], []
            for number, place in enumerate(order[start : start + self.batch_size].tolist()):
                example = teaching[place]
                others = np.flatnonzero(~example.relevant)
                drawn = rng.choice(others, size=min(self.n_negatives, len(others)), replace=False)
                chosen = np.concatenate([np.flatnonzero(example.relevant), drawn])
                places, begins = ragged_take(example.begins, chosen)
                reading = self._read(network, engine, example.passages[places], example.own, example.tokens)
                of_passages = reading.parts @ self._weights(network)
                scores.append(of_passages[best_passages(of_passages.detach().cpu().numpy(), begins)])
                numbers.append(np.full(len(chosen), number))
                relevant.append(example.relevant[chosen])
            yield torch.cat(scores), np.concatenate(numbers), np.concatenate(relevant)

    def _read(self, network: Any, engine: Engine, passages: Ints, own: int, query: Floats) -> _Reading:
        """Put passages in context for a query with these tokens (q, dim)."""
        import torch

        from haybale.context.networks.token_attention import max_sim

        device, mask = network.balance.device, hidden_links(self, engine)
        graph, context_only = graph_of(engine).graph, self.kind == "lim"
        around = neighbourhoods(graph, passages, self.layers, own, mask, context_only=context_only)
        values, there = (torch.from_numpy(each).to(device) for each in self._tokens.of_nodes(engine, around.nodes))
        made, _, messages = network(values, around, there)
        asking, rows = torch.from_numpy(query).to(device), around.targets
        in_context, nearest = max_sim(asking, made[rows], there[rows])
        alone, _ = max_sim(asking, values[rows], there[rows])
        # The mean over the tokens of the query makes scores of all queries comparable.
        return _Reading(torch.stack([alone, in_context], dim=1) / len(query), messages, nearest, around)

    def _weights(self, network: Any) -> Any:
        """Return the weights (2,) of a passage alone and of the passage in context, a tensor."""
        import torch

        share = torch.ones_like(network.share) if self.kind == "mim" else network.share
        return torch.stack([1 - share, share])

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        import torch

        network, query = self.networks_[fold], self._tokens.of_query(batch, candidates.row)
        places, _ = self._nearest(candidates)
        scores = np.full(len(candidates.passages), -np.inf)
        with torch.no_grad():
            parts = self._read(network, batch.engine, candidates.passages[places], candidates.own, query).parts
            scores[places] = (parts.double() @ self._weights(network).double()).cpu().numpy()
        return scores

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        return document_scores(self, batch, rows, documents, self.folds_of(batch.ids) if out_of_fold else None)

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k best passages of each query among those that are read."""
        return best_hits(self, batch, k)

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself, and of what each neighbour adds to its nearest tokens."""
        import torch

        candidates, passage = best_passage(self, batch, document)
        engine, network, itself = batch.engine, self.networks_[-1], np.array([passage])
        query = self._tokens.of_query(batch, candidates.row)
        with torch.no_grad():
            reading = self._read(network, engine, itself, candidates.own, query)
            own_share, context_share = self._weights(network).tolist()
        around, asking = reading.around, torch.from_numpy(query).to(reading.parts)
        alone, rest = reading.parts[0].tolist()
        shares = [] if self.kind == "mim" else [node_share(engine, itself, own_share * alone)]
        for place, edge in enumerate(np.flatnonzero(around.target < around.sizes[0]).tolist()):
            relation = int(around.relation[edge])
            if relation != SELF:
                value = float((asking * reading.messages[place][reading.nearest[0]]).sum() / len(query))
                rest -= value
                nodes = around.nodes[[around.source[edge]]]
                shares.append(node_share(engine, nodes, context_share * value, RELATIONS[relation]))
        if self.kind != "lim":  # what remains: the passage's attention to itself, and what it had before the layer
            shares.append(node_share(engine, itself, context_share * rest, "itself"))
        return by_size(shares)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return self.networks_.save(folder) | {"dim": self._tokens.dim, "mask": self.mask_}

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        import_optional("torch", "neural")
        self.read_folds(folder)
        self.mask_ = facts["mask"]
        self.networks_ = NetworkFolds.load(folder, facts, partial(self._untrained, facts["dim"]), self)

    @property
    def fit_report_(self) -> dict[str, Any]:
        return {"training queries": len(self.query_ids_)} | self.networks_.report((*RELATIONS, "itself"))


class TokenMatrices:
    """A matrix for each text, with a vector of length 1 for each token.

    Nodes are kept as float16 until they take 512 MiB; of queries, the last block of a batch is kept.

    Parameters
    ----------
    model : str
        Hub id or folder that ``MultiVectorEncoder`` of sentence-transformers loads.
    query_length, passage_length : int
        Largest number of tokens.
    """

    def __init__(self, model: str, query_length: int, passage_length: int) -> None:
        self.model = late_interaction(model)
        self.query_length, self.passage_length = query_length, passage_length
        self._nodes: dict[int, Any] = {}
        self._collection: Collection | None = None  # that the nodes are of
        self._n_numbers = 0
        self._block: tuple[QueryBatch, int, list[Floats]] | None = None

    @cached_property
    def dim(self) -> int:
        return int(self.of_queries(["a text"])[0].shape[1])

    def of_queries(self, texts: Sequence[str]) -> list[Floats]:
        """Return a matrix (q, dim) for each query."""
        found = self.model.encode_query(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return [_unit(tokens[: self.query_length]) for tokens in found]

    def of_query(self, batch: QueryBatch, row: int) -> Floats:
        """Return the matrix of one query of a batch, encoded together with those beside it."""
        number, place = divmod(row, _BLOCK)
        block = self._block
        if block is None or block[0] is not batch or block[1] != number:
            block = batch, number, self.of_queries(batch.texts[number * _BLOCK : (number + 1) * _BLOCK])
            self._block = block
        return block[2][place]

    def of_nodes(self, engine: Engine, nodes: Ints) -> tuple[Floats, Any]:
        """Return tokens (n, t, dim) of passages' texts and sections' titles, and which of the tokens exist (n, t).

        An empty text has one token, which is 0.
        """
        if self._collection is not engine.collection or self._n_numbers > _KEPT:
            self._collection, self._nodes, self._n_numbers = engine.collection, {}, 0
        missing = [node for node in np.unique(nodes).tolist() if node not in self._nodes]
        if missing:
            graph, texts = graph_of(engine).graph, engine.collection.passages.texts
            n = graph.n_passages
            given = [texts[node].as_py() if node < n else graph.titles[node - n] for node in missing]
            full = [text for text in given if text.strip()]
            options = {"convert_to_numpy": True, "show_progress_bar": False}
            found = iter(self.model.encode_document(full, **options) if full else [])
            for node, text in zip(missing, given, strict=True):
                tokens = _unit(next(found)[: self.passage_length]) if text.strip() else np.zeros((1, self.dim))
                self._nodes[node] = tokens.astype(np.float16)
                self._n_numbers += tokens.size
        matrices = [self._nodes[node] for node in nodes.tolist()]
        lengths = np.array(list(map(len, matrices)))
        there = np.arange(lengths.max()) < lengths[:, None]
        values = np.zeros((*there.shape, self.dim), dtype=np.float32)
        values[there] = np.concatenate(matrices)
        return values, there


def _unit(tokens: Any) -> Floats:
    """Scale rows to length 1."""
    lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.asarray(tokens / np.where(lengths > 0, lengths, 1), dtype=np.float32)
