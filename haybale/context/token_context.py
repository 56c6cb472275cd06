"""Graph attention over token matrices as a ranker, with late interaction: the form that the paper has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from haybale.collections.collection import Ints, indptr_from_counts
from haybale.context.context_ranker import ContextRanker, QueryCandidates, Scores, graph_of
from haybale.context.document_graph import RELATIONS
from haybale.context.graph_context import ranking_loss
from haybale.context.linear_context import best_passages
from haybale.context.neighbourhoods import SELF, neighbourhoods
from haybale.context.network_context import NetworkContext
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.pairs.pair_encoders import late_interaction
from haybale.parameters import BOOLEAN, COUNT, POSITIVE, RANDOM_STATE, TEXT_OR_NONE, Interval, one_of
from haybale.progress import track
from haybale.rankers.explanation import Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.vectors import Floats

_KEPT = 2**28  # numbers of tokens that are kept: 512 MiB of float16


@dataclass(eq=False, repr=False)
class TokenContext(NetworkContext):
    """LiM, MiM and Mix-iM over token matrices: of each node a vector a token, scored by MaxSim.

    As :class:`GraphContext`, with nodes as late-interaction models encode them and attention from the tokens of a
    passage over those of its neighbours, by the eight relations of the graph. Texts are encoded when they are first
    asked for, those of the passages that are read and of what their context reads. The encoder is not trained.
    (Extra ``neural``.)

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    model : str
        Hub id or folder of what ``MultiVectorEncoder`` of sentence-transformers loads: a late-interaction model, or any
        model of texts, whose tokens are then taken.
    kind : {"lim", "mim", "mix-im"}, default "lim"
    n_documents, n_passages : int, default 20 and 3
        Documents of each query that are read, and passages of each: the nearest by the engine's vectors.
    layers, heads : int, default 1 and 4
    residual : bool, default True
    dropout : float, default 0.1
    loss : {"listwise", "pairwise"}, default "listwise"
    epochs, batch_size : int, default 3 and 8
        Of and in queries.
    n_negatives : int, default 7
        Documents drawn for a training query, of those that are read.
    learning_rate, weight_decay : float, default 0.001 and 1
    n_queries : int, default 1000
    query_length, passage_length : int, default 120 and 180
        Tokens, at most.
    mask : {"own", "relevant", "off"}, default "own"
    device : str, optional
        Of torch, for the network; default: the CPU.
    random_state : int, default 0
    """

    name = "token-context"
    variants: ClassVar = {f"token-{kind}": {"kind": kind} for kind in ("lim", "mim", "mix-im")}
    _parameter_constraints: ClassVar = {
        **ContextRanker._ranges,
        "model": [str],
        "kind": one_of(["lim", "mim", "mix-im"]),
        **dict.fromkeys(("n_passages", "layers", "heads", "epochs", "batch_size", "n_negatives", "n_queries"), COUNT),
        "query_length": [Interval(Integral, 4, 10**6, closed="both")],
        "passage_length": [Interval(Integral, 4, 10**6, closed="both")],
        "residual": BOOLEAN,
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "loss": one_of(["listwise", "pairwise"]),
        "learning_rate": POSITIVE,
        "weight_decay": [Interval(Real, 0, 10**6, closed="both")],
        "device": TEXT_OR_NONE,
        "random_state": RANDOM_STATE,
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    kind: str = "lim"
    n_documents: int = 20
    n_passages: int = 3
    layers: int = 1
    heads: int = 4
    residual: bool = True
    dropout: float = 0.1
    loss: str = "listwise"
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

    def fit_batch(self, training: Training) -> None:
        dim = self._tokens().dim
        if dim % self.heads:
            raise InputError(f"heads: {self.heads} heads do not divide token vectors of width {dim}")
        super().fit_batch(training)

    def _tokens(self) -> _Tokens:
        """The encoder, loaded once."""
        if getattr(self, "_encoder", None) is None:
            self._encoder = _Tokens(self.model, self.query_length, self.passage_length)
        return self._encoder

    def _network(self, dim: int) -> Any:
        from haybale.context.networks.token_attention import TokenNetwork

        network = TokenNetwork(dim, len(RELATIONS) + 1, self.layers, self.heads, self.dropout, self.residual)
        return network.to(self.device or "cpu")

    def _asked(self, batch: QueryBatch, rows: Ints, documents: Ints) -> Iterator[QueryCandidates]:
        """At the passages of each document that are nearest by the engine's vectors."""
        for asked in super()._asked(batch, rows, documents):
            chosen = [
                start + np.sort(np.argsort(-asked.scores[asked.passages[start:end]], kind="stable")[: self.n_passages])
                for start, end in pairwise(asked.begins)
            ]
            passages = asked.passages[np.concatenate(chosen)]
            yield asked._replace(passages=passages, begins=indptr_from_counts([len(each) for each in chosen]))

    def _learn(self, training: Training) -> None:
        batch, query, documents, relevant = self._judged(training)
        edges = np.searchsorted(query, np.arange(len(batch) + 1))
        teaching = [
            (asked, relevant[edges[asked.row] : edges[asked.row + 1]])
            for asked in self._asked(batch, query, documents)
            if relevant[edges[asked.row] : edges[asked.row + 1]].any()
        ]
        self._begin(batch, (batch, teaching))

    def _width(self) -> int:
        return self._tokens().dim

    def _trained(self, fold: int) -> tuple[Any, float]:
        """A network that learned from the queries outside a fold, and its loss in the last epoch."""
        import torch

        batch, teaching = self._learned_from
        teaching = [pair for pair in teaching if self.fold_of_[pair[0].row] != fold]
        rng, losses = np.random.default_rng(self.random_state), [0.0]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(int(rng.integers(2**31)))
            network = self._network(self._tokens().dim)
            few = [network.balance, network.log_scale, *(layer.weight for layer in network.layers)]
            many = [p for p in network.parameters() if not any(p is each for each in few)]
            rates: list[dict[str, Any]] = [
                {"params": many},
                {"params": few, "lr": 10 * self.learning_rate, "weight_decay": 0.0},
            ]
            optimizer = torch.optim.AdamW(rates, lr=self.learning_rate, weight_decay=self.weight_decay)
            for _ in track(range(self.epochs if teaching else 0), "learning context"):
                losses, order = [], rng.permutation(len(teaching))
                for start in range(0, len(order), self.batch_size):
                    scores, numbers, rights = [], [], []
                    for number, place in enumerate(order[start : start + self.batch_size].tolist()):
                        asked, right = teaching[place]
                        network.eval()
                        with torch.no_grad():
                            now = (self._scored(network, batch, asked)[0] @ self._balance(network)).numpy()
                        network.train()
                        best = best_passages(now, asked.begins)
                        others = np.flatnonzero(~right)
                        drawn = rng.choice(others, size=min(self.n_negatives, len(others)), replace=False)
                        chosen = np.concatenate([np.flatnonzero(right), drawn])
                        picked = asked._replace(passages=asked.passages[best[chosen]])
                        scores.append(self._scored(network, batch, picked)[0] @ self._balance(network))
                        numbers.append(np.full(len(chosen), number))
                        rights.append(right[chosen])
                    query, right = np.concatenate(numbers), np.concatenate(rights)
                    loss = ranking_loss(torch.cat(scores) * network.log_scale.exp(), query, right, self.loss)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(float(loss.detach()))
        return network.eval(), float(np.mean(losses))

    def _scored(self, network: Any, batch: QueryBatch, asked: QueryCandidates) -> tuple[Any, Any, Any, Any]:
        """``((c, k) parts, what the edges add, the nearest tokens in context, the neighbourhoods)`` of passages."""
        import torch

        from haybale.context.networks.token_attention import max_sim

        engine, tokens, n = batch.engine, self._tokens(), len(asked.passages)
        graph, device = graph_of(engine).graph, network.balance.device
        how: dict[str, Any] = {"context_only": self.kind == "lim"}
        found = neighbourhoods(graph, asked.passages, self.layers, asked.own, self._hidden(engine), **how)
        used, at = np.unique(found.nodes, return_inverse=True)
        matrices = tokens.of_nodes(engine, used)
        t = max(map(len, matrices))
        wide = np.zeros((len(used), t, tokens.dim), dtype=np.float32)
        for row, matrix in enumerate(matrices):
            wide[row, : len(matrix)] = matrix
        there = np.arange(t) < np.array(list(map(len, matrices)))[:, None]
        values, is_there = (torch.from_numpy(each[at]).to(device) for each in (wide, there))
        edges = (torch.from_numpy(each).to(device) for each in (found.source, found.target, found.relation))
        made, messages, _ = network(values, is_there, *edges, n if self.kind == "lim" else 0)
        query = torch.from_numpy(tokens.of_query(batch.texts[asked.row])).to(device)[None].expand(n, -1, -1)
        asking = torch.ones(query.shape[:2], dtype=torch.bool, device=device)
        around, place = max_sim(query, asking, made[:n], is_there[:n])
        parts = [around / query.shape[1]]  # the mean over the tokens of the query, so that all queries compare
        if self._itself:
            parts.insert(0, max_sim(query, asking, values[:n], is_there[:n])[0] / query.shape[1])
        return torch.stack(parts, dim=1), messages, place, found

    def _balance(self, network: Any) -> Any:
        """(k,) the weights of the parts."""
        import torch

        if not self._itself:
            return torch.ones(1, device=network.balance.device)
        return torch.stack([1 - network.share, network.share])

    def _parts(self, asked: QueryCandidates, batch: QueryBatch, fold: int) -> Floats:
        import torch

        network = self.network(fold)
        with torch.no_grad():
            found: Floats = self._scored(network, batch, asked)[0].cpu().numpy()
        return found

    def _weights(self, fold: int) -> Scores:
        found: Scores = self._balance(self.network(fold)).detach().cpu().numpy().astype(np.float64)
        return found

    def _around(self, batch: QueryBatch, asked: QueryCandidates, passage: int) -> list[Share]:
        """What each neighbour adds, at the tokens of the context that are nearest to those of the query."""
        import torch

        network, one = self.network(), asked._replace(passages=np.array([passage]))
        query = torch.from_numpy(self._tokens().of_query(batch.texts[asked.row])).to(network.balance.device)
        with torch.no_grad():
            parts, messages, place, found = self._scored(network, batch, one)
        weight = float(self._weights(-1)[-1])
        shares, itself = [], float(parts[0, -1])
        for edge in np.flatnonzero(found.target == 0).tolist():
            if int(found.relation[edge]) == SELF:
                continue
            value = float((query * messages[edge][place[0]]).sum() / len(query))
            itself -= value
            called, text = self._neighbour(batch.engine, found.nodes[[found.source[edge]]])
            shares.append(Share(f"{RELATIONS[found.relation[edge]]}: {called}", weight * value, text))
        if self.kind != "lim":  # what is left: the node to itself, and what it had before
            called, text = self._neighbour(batch.engine, np.array([passage]))
            shares.append(Share(f"itself: {called}", weight * itself, text))
        return shares

    @property
    def fit_report_(self) -> dict[str, Any]:
        network = self.network()
        found = {"training queries": len(self.query_ids_), "loss": self.loss_}
        if self._itself:
            found["λ"] = float(network.share.detach())
        weights = network.layers[-1].weight.detach().cpu().tolist()
        return found | {f"w of {name}": weight for name, weight in zip([*RELATIONS, "itself"], weights, strict=True)}


class _Tokens:
    """Token matrices of nodes and queries, of length 1 a token; what was encoded is kept as float16."""

    def __init__(self, model: str, query_length: int, passage_length: int) -> None:
        self.model = late_interaction(model)
        self.query_length, self.passage_length = query_length, passage_length
        self._of_node: dict[int, Any] = {}
        self._of: Any = None  # the collection that the nodes are of
        self._numbers = 0
        self._of_query: dict[str, Floats] = {}

    @property
    def dim(self) -> int:
        return int(self.of_query("a text").shape[1])

    def of_query(self, text: str) -> Floats:
        """(q, dim)"""
        if text not in self._of_query:
            found = self.model.encode_query([text], convert_to_numpy=True, show_progress_bar=False)[0]
            self._of_query[text] = _unit(found[: self.query_length])
        return self._of_query[text]

    def of_nodes(self, engine: Engine, nodes: Ints) -> list[Floats]:
        """(t, dim) of each node (n,): of passages their texts, of sections their titles; one 0 for an empty one."""
        if self._of is not engine.collection or self._numbers > _KEPT:
            self._of, self._of_node, self._numbers = engine.collection, {}, 0
        missing = [node for node in nodes.tolist() if node not in self._of_node]
        if missing:
            graph, texts = graph_of(engine).graph, engine.collection.passages.texts
            n = graph.n_passages
            named = [texts[node].as_py() if node < n else graph.titles[node - n] for node in missing]
            full = [text for text in named if text.strip()]
            how = {"convert_to_numpy": True, "show_progress_bar": False}
            found = iter(self.model.encode_document(full, **how) if full else [])
            for node, text in zip(missing, named, strict=True):
                matrix = _unit(next(found)[: self.passage_length]) if text.strip() else np.zeros((1, self.dim))
                self._of_node[node] = matrix.astype(np.float16)
                self._numbers += matrix.size
        return [self._of_node[node].astype(np.float32) for node in nodes.tolist()]


def _unit(tokens: Any) -> Floats:
    """Rows of length 1."""
    lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.asarray(tokens / np.where(lengths > 0, lengths, 1), dtype=np.float32)
