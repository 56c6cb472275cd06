"""The rankers ``token-lim``, ``token-mim`` and ``token-mix-im``: graph attention over token matrices, with MaxSim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Ints, indptr_from_counts, ragged_take
from haybale.context.candidates import (
    BestPassage,
    JudgedDocuments,
    QueryCandidates,
    Scores,
    best_passages,
    judged_documents,
    query_candidates,
)
from haybale.context.document_graph import RELATIONS
from haybale.context.engine_graph import graph_of, node_share
from haybale.context.masks import hidden_links, relevant_by_own
from haybale.context.neighbourhoods import SELF, Neighbourhoods, neighbourhoods
from haybale.context.network_folds import KINDS, RANGES, NetworkFolds
from haybale.embeddings.torch_models import late_interaction, model_digests
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, Interval
from haybale.rankers import Explanation, OutOfFold, QueryBatch, Ranker, Share, Training
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Run
from haybale.search.explanation import by_size
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.context.networks.network_training import Scored

_MAX_CACHED_NUMBERS = 2**28  # numbers in the cached token matrices of nodes: 512 MiB of float16
_QUERIES_PER_BLOCK = 64  # queries that are encoded together


class _Example(NamedTuple):
    """A training query with the passages of its documents that are read."""

    row: int
    own: int
    tokens: Floats
    passages: Ints
    begins: Ints  # (n + 1,)
    relevant: NDArray[np.bool_]  # (n,)


class _Reading(NamedTuple):
    """Passages in context, as tensors."""

    parts: Any  # (c, 2) MaxSim of the query with the passages, and with the passages in context
    messages: Any  # (e, t, dim) contribution of each edge in the last layer
    nearest: Any  # (c, q) index of the nearest token in context of each query token
    around: Neighbourhoods


@dataclass(eq=False, repr=False)
class TokenContext(BestPassage, OutOfFold, Reranker):
    """Re-rank by graph attention over token matrices, scored by MaxSim: LiM, MiM and Mix-iM as in the paper.

    The formulas are those of :class:`GraphContext`, but a node is a matrix with a vector for each token. The tokens of
    a passage attend to the tokens of its neighbours by the eight relations of the graph. Passages are encoded when they
    are first read. The encoder is not trained. Needs the extra ``neural``.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    model : str
        Hub id or folder that ``MultiVectorEncoder`` of sentence-transformers loads: a late-interaction model, or any
        text model, whose token vectors are then used.
    n_documents : int, default 20
        Number of documents that are re-ranked for each query.
    n_passages : int, default 3
        Number of passages of each document that are read: the nearest to the query by the engine's vectors.
    layers : int, default 1
        Number of attention layers; the paper has 3.
    query_length, passage_length : int, default 120 and 180
        Maximum number of tokens; longer texts are truncated.
    kind, heads, dropout, learning_rate, weight_decay, mask, device, random_state : optional
        As for :class:`GraphContext`, with the same defaults.
    epochs, batch_size, n_negatives, n_queries : int, default 3, 8, 7 and 1000
        As for :class:`GraphContext`; negatives are sampled from the documents that are read.
    """

    name = "token-context"
    variants: ClassVar = {f"token-{kind}": {"kind": kind} for kind in KINDS}
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

    @property
    def models(self) -> tuple[str, ...]:
        """The model that makes the vectors of tokens."""
        return (self.model,)

    @property
    def outside_state(self) -> dict[str, Any]:
        """The digests of the model, and what nested rankers read."""
        return super().outside_state | self._tokens.digests()

    def fit_batch(self, training: Training) -> None:
        self.__dict__.pop("_tokens", None)  # an earlier fit may have used another model
        if self._tokens.dim % self.heads:
            width = self._tokens.dim
            raise InputError(f"heads must divide the width of the token vectors, {width}, found {self.heads}")
        _ = graph_of(training.engine)  # raises before any work if there is no graph
        self.rankers_ = [self.ranker._fitted_copy(training.for_nested())]
        self.mask_ = relevant_by_own(self, training)
        self.networks_ = NetworkFolds(self._tokens.dim, self, judged_documents(self, training))

    def _nearest(self, candidates: QueryCandidates) -> tuple[Ints, Ints]:
        """Return the indices of the passages that are read, and where those of each document begin."""
        scores = candidates.scores[candidates.passages]
        chosen = [
            start + np.sort(np.argsort(-scores[start:end], kind="stable")[: self.n_passages])
            for start, end in pairwise(candidates.begins.tolist())
        ]
        return np.concatenate(chosen), indptr_from_counts([len(indices) for indices in chosen])

    def new_network(self, dim: int) -> Any:
        from haybale.context.networks.attention import ContextNetwork
        from haybale.context.networks.token_attention import TokenAttention

        shape = dim, SELF + 1, self.layers, self.heads, self.dropout
        return ContextNetwork(*shape, layer=TokenAttention, scale=1.0).to(self.device or "cpu")

    def training_batches(self, judged: JudgedDocuments) -> Callable[[Any, int, np.random.Generator], Iterator[Scored]]:
        examples = []
        for candidates in query_candidates(judged.batch, judged.rows, judged.documents):
            relevant = judged.relevant[judged.of(candidates.row)]
            if relevant.any():
                indices, begins = self._nearest(candidates)
                tokens = self._tokens.of_query(judged.batch, candidates.row)
                examples.append(
                    _Example(candidates.row, candidates.own, tokens, candidates.passages[indices], begins, relevant)
                )
        return partial(self._batches, judged.batch.engine, examples)

    def _batches(
        self, engine: Engine, examples: list[_Example], network: Any, fold: int, rng: np.random.Generator
    ) -> Iterator[Scored]:
        """Yield the scored batches of one epoch: the positives and sampled negatives of queries outside the fold."""
        import torch

        used = [example for example in examples if self.fold_of_[example.row] != fold]
        order = rng.permutation(len(used))
        for start in range(0, len(order), self.batch_size):
            scores, numbers, relevant = [], [], []
            for number, index in enumerate(order[start : start + self.batch_size].tolist()):
                example = used[index]
                others = np.flatnonzero(~example.relevant)
                drawn = rng.choice(others, size=min(self.n_negatives, len(others)), replace=False)
                chosen = np.concatenate([np.flatnonzero(example.relevant), drawn])
                indices, begins = ragged_take(example.begins, chosen)
                reading = self._read(network, engine, example.passages[indices], example.own, example.tokens)
                of_passages = reading.parts @ self._weights(network)
                scores.append(of_passages[best_passages(of_passages.detach().cpu().numpy(), begins)])
                numbers.append(np.full(len(chosen), number))
                relevant.append(example.relevant[chosen])
            yield torch.cat(scores), np.concatenate(numbers), np.concatenate(relevant)

    def _read(self, network: Any, engine: Engine, passages: Ints, own_document: int, query: Floats) -> _Reading:
        """Compute passages in context, and their scores, for a query with tokens (q, dim)."""
        import torch

        from haybale.context.networks.token_attention import max_sim

        device, mask = network.balance.device, hidden_links(self, engine)
        graph, context_only = graph_of(engine).graph, self.kind == "lim"
        around = neighbourhoods(graph, passages, self.layers, own_document, mask, context_only=context_only)
        values, there = (torch.from_numpy(array).to(device) for array in self._tokens.of_nodes(engine, around.nodes))
        context, _, messages = network(values, around, there)
        tokens, rows = torch.from_numpy(query).to(device), around.targets
        in_context, nearest = max_sim(tokens, context[rows], there[rows])
        alone, _ = max_sim(tokens, values[rows], there[rows])
        # The mean over query tokens, not the sum, makes scores comparable between queries.
        return _Reading(torch.stack([alone, in_context], dim=1) / len(query), messages, nearest, around)

    def _weights(self, network: Any) -> Any:
        """Return the weights (2,) of a passage alone and of the passage in context, as a tensor."""
        import torch

        share = torch.ones_like(network.share) if self.kind == "mim" else network.share
        return torch.stack([1 - share, share])

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        import torch

        network, query = self.networks_[fold], self._tokens.of_query(batch, candidates.row)
        indices, _ = self._nearest(candidates)
        scores = np.full(len(candidates.passages), -np.inf)
        with torch.no_grad():
            parts = self._read(network, batch.engine, candidates.passages[indices], candidates.own, query).parts
            scores[indices] = (parts.double() @ self._weights(network).double()).cpu().numpy()
        return scores

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself, and of each neighbour's contribution to its nearest tokens."""
        import torch

        candidates, passage = self.best_passage(batch, document)
        engine, network, itself = batch.engine, self.networks_[-1], np.array([passage])
        query = self._tokens.of_query(batch, candidates.row)
        with torch.no_grad():
            reading = self._read(network, engine, itself, candidates.own, query)
            own_share, context_share = self._weights(network).tolist()
        around, tokens = reading.around, torch.from_numpy(query).to(reading.parts)
        alone, rest = reading.parts[0].tolist()
        shares = [] if self.kind == "mim" else [node_share(engine, itself, own_share * alone)]
        for layer_edge, edge in enumerate(np.flatnonzero(around.target < around.sizes[0]).tolist()):
            relation = int(around.relation[edge])
            if relation != SELF:
                value = float((tokens * reading.messages[layer_edge][reading.nearest[0]]).sum() / len(query))
                rest -= value
                nodes = around.nodes[[around.source[edge]]]
                shares.append(node_share(engine, nodes, context_share * value, RELATIONS[relation]))
        if self.kind != "lim":  # the rest is the passage's attention to itself and the residual connection
            shares.append(node_share(engine, itself, context_share * rest, "itself"))
        return by_size(shares)

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        return self.networks_.save(folder) | {"mask": self.mask_} | self._tokens.digests()

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        import_optional("torch", "neural")
        self.read_folds(folder)
        self.mask_ = state["mask"]
        for part, digest in self._tokens.digests().items():
            if state[part] != digest:
                raise FileFormatError(
                    self.model,
                    None,
                    f"expected the {part} that {self} was saved with, found others; restore them, or fit "
                    "and save the ranker again",
                )
        self.networks_ = NetworkFolds.load(folder, state, self)

    @property
    def fit_report_(self) -> dict[str, Any]:
        return (
            {"training queries": len(self.query_ids_)}
            | self.networks_.report((*RELATIONS, "itself"))
            | self.twins_.report
        )


class TokenMatrices:
    """Token matrices of texts, with a vector of length 1 for each token.

    The matrices of nodes are cached as float16, up to 512 MiB; those of queries, for the last block of a batch only.
    ``model`` and the lengths are parameters of :class:`TokenContext`.
    """

    def __init__(self, model: str, query_length: int, passage_length: int) -> None:
        self.model = late_interaction(model)
        self.query_length, self.passage_length = query_length, passage_length
        self._nodes: tuple[Collection | None, dict[int, Any]] = None, {}  # the cached nodes of a collection
        self._n_numbers = 0
        self._block: tuple[QueryBatch, int, list[Floats]] | None = None

    @cached_property
    def dim(self) -> int:
        return int(self.of_queries(["a text"])[0].shape[1])

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of ``weights`` and ``tokenizer``, with which a saved ranker checks the model."""
        return model_digests(self.model, self.model.tokenizer)

    def of_queries(self, texts: Sequence[str]) -> list[Floats]:
        """Return a matrix (q, dim) for each query."""
        matrices = self.model.encode_query(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return [_unit(tokens[: self.query_length]) for tokens in matrices]

    def of_query(self, batch: QueryBatch, row: int) -> Floats:
        """Return the matrix of one query of a batch, encoded together with the rest of its block."""
        number, row_in_block = divmod(row, _QUERIES_PER_BLOCK)
        block = self._block
        if block is None or block[0] is not batch or block[1] != number:
            start = row - row_in_block
            block = batch, number, self.of_queries(batch.texts[start : start + _QUERIES_PER_BLOCK])
            self._block = block
        return block[2][row_in_block]

    def of_nodes(self, engine: Engine, nodes: Ints) -> tuple[Floats, Any]:
        """Return padded tokens (n, t, dim) of passage texts and section titles, and a mask (n, t), False for padding.

        An empty text has one token, the zero vector.
        """
        cached = self._nodes  # another thread, on another snapshot, may replace it
        if cached[0] is not engine.collection or self._n_numbers > _MAX_CACHED_NUMBERS:
            cached, self._n_numbers = (engine.collection, {}), 0
            self._nodes = cached
        matrix_of_node = cached[1]
        missing = [node for node in np.unique(nodes).tolist() if node not in matrix_of_node]
        if missing:
            graph, texts = graph_of(engine).graph, engine.collection.passages.texts
            n = graph.n_passages
            node_texts = [texts[node].as_py() if node < n else graph.titles[node - n] for node in missing]
            full = [text for text in node_texts if text.strip()]
            options = {"convert_to_numpy": True, "show_progress_bar": False}
            encoded = iter(self.model.encode_document(full, **options) if full else [])
            for node, text in zip(missing, node_texts, strict=True):
                tokens = _unit(next(encoded)[: self.passage_length]) if text.strip() else np.zeros((1, self.dim))
                matrix_of_node[node] = tokens.astype(np.float16)
                self._n_numbers += tokens.size
        matrices = [matrix_of_node[node] for node in nodes.tolist()]
        lengths = np.array(list(map(len, matrices)))
        there = np.arange(lengths.max()) < lengths[:, None]
        values = np.zeros((*there.shape, self.dim), dtype=np.float32)
        values[there] = np.concatenate(matrices)
        return values, there


def _unit(tokens: Any) -> Floats:
    """Scale rows to length 1."""
    lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.asarray(tokens / np.where(lengths > 0, lengths, 1), dtype=np.float32)
