"""Graph attention as a ranker: a passage by what it says and by what attention makes of its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.collections.collection import Ints, ragged_take
from haybale.context.context_ranker import ContextRanker, QueryCandidates, Scores, graph_of
from haybale.context.document_graph import RELATIONS, Mask
from haybale.context.linear_context import best_passages
from haybale.context.neighbourhoods import near, neighbourhoods
from haybale.context.network_context import NetworkContext
from haybale.context.relation_paths import PATHS, Sums
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import BOOLEAN, COUNT, POSITIVE, RANDOM_STATE, TEXT_OR_NONE, Interval, one_of
from haybale.progress import track
from haybale.rankers.explanation import Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.vectors import Floats

_CHUNK = 2048  # passages put in context at once


class Examples(NamedTuple):
    """Training queries with the documents that they are re-ordered among, and what of these is relevant."""

    queries: Floats  # (m, d)
    own: Ints  # (m,)
    asked: Ints  # (n,) the query of each document, rising
    passages: Ints
    begins: Ints  # (n + 1,)
    relevant: NDArray[np.bool_]  # (n,)


@dataclass(eq=False, repr=False)
class GraphContext(NetworkContext):
    """Passages in context by graph attention, over dense vectors: LiM, MiM and Mix-iM.

    LiM (``lim``) scores (1 − λ) · q·p + λ · q·CGAT(p), where CGAT sees what stands around p and nothing of p; Mix-iM
    (``mix-im``) has GAT(p), of p and what stands around it, in place of that; MiM (``mim``) has q·GAT(p) alone. λ is
    learned. Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022;
    :mod:`haybale.context.networks.attention` has the layers. They know paragraphs that are relevant; here a document's
    best passage stands for it, chosen anew each epoch, and negatives are documents that score high. (Extra ``neural``.)

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    kind : {"lim", "mim", "mix-im"}, default "lim"
    relations : {"paths", "edges"}, default "paths"
        What a passage attends to: the means over ten relation paths (:data:`~haybale.context.PATHS`), or, layer by
        layer, the neighbours by the paper's eight relations.
    layers, heads : int, default 1 and 4
        With paths one layer.
    over : {"neighbours", "relations"}, default "neighbours"
        What attention is normalised over.
    context_query : {"content", "type"}, default "content"
        With what a passage asks its neighbours: its vector, or one that is learned for all passages.
    residual : bool, default True
    dropout : float, default 0.1
    loss : {"listwise", "pairwise"}, default "listwise"
        −log softmax of the relevant document among its negatives; or −log σ(s⁺ − s⁻).
    epochs, batch_size : int, default 8 and 32
        Of and in queries.
    n_negatives, n_train : int, default 15 and 60
        Documents drawn for a query, of so many that score highest.
    learning_rate, weight_decay : float, default 0.001 and 1
        Of AdamW; ten times the rate for λ, the weights of relations and the scale.
    n_queries : int, default 3000
        Training queries that are learned from, drawn at random where there are more.
    n_documents, mask : as of :class:`LinearContext`
    device : str, optional
        Of torch. Default: the CPU.
    random_state : int, default 0
    """

    name = "graph-context"
    variants: ClassVar = {kind: {"kind": kind} for kind in ("lim", "mim", "mix-im")}
    _parameter_constraints: ClassVar = {
        **ContextRanker._ranges,
        "kind": one_of(["lim", "mim", "mix-im"]),
        "relations": one_of(["paths", "edges"]),
        **dict.fromkeys(("layers", "heads", "epochs", "batch_size", "n_negatives", "n_train", "n_queries"), COUNT),
        "over": one_of(["neighbours", "relations"]),
        "context_query": one_of(["content", "type"]),
        "residual": BOOLEAN,
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "loss": one_of(["listwise", "pairwise"]),
        "learning_rate": POSITIVE,
        "weight_decay": [Interval(Real, 0, 10**6, closed="both")],
        "device": TEXT_OR_NONE,
        "random_state": RANDOM_STATE,
    }

    ranker: Ranker
    _: KW_ONLY
    kind: str = "lim"
    relations: str = "paths"
    layers: int = 1
    heads: int = 4
    over: str = "neighbours"
    context_query: str = "content"
    residual: bool = True
    dropout: float = 0.1
    loss: str = "listwise"
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

    def check_params(self) -> None:
        """As every ranker's; paths lead everywhere in one layer."""
        super().check_params()
        if self.relations == "paths" and self.layers != 1:
            raise InputError("layers: relation paths lead everywhere in one layer; more are for relations='edges'")

    def fit_batch(self, training: Training) -> None:
        import_optional("torch", "neural")
        dim = self._dim(training.batch.engine)
        if dim % self.heads:
            raise InputError(f"heads: {self.heads} heads do not divide vectors of width {dim}")
        super().fit_batch(training)

    def _dim(self, engine: Engine) -> int:
        """The width of the engine's vectors, which must be dense."""
        vectors = graph_of(engine).vectors
        if vectors.is_sparse:
            raise InputError(f"{self} attends to dense vectors; build the engine with encoder 'lsa' or a neural one")
        return int(vectors.passages.shape[1])

    def _network(self, dim: int) -> Any:
        """A network before learning: on every passage the mean of its neighbours."""
        from haybale.context.networks.attention import ContextNetwork

        n = (len(PATHS) if self.relations == "paths" else len(RELATIONS)) + 1  # and a node to itself
        shape = dim, n, self.layers, self.heads, self.dropout, self.over
        network = ContextNetwork(*shape, residual=self.residual, blind=self.context_query == "type")
        return network.to(self.device or "cpu")

    def _learn(self, training: Training) -> None:
        batch, asked, documents, relevant = self._judged(training)
        passages, begins = ragged_take(batch.engine.passages.doc_offsets, documents)
        queries = np.asarray(batch.vectors, dtype=np.float32)
        examples = Examples(queries, batch.own, asked, passages, begins, relevant)
        self._contexts: tuple[Collection, dict[int, Floats]] | None = None
        self._begin(batch, (batch.engine, examples))

    def _width(self) -> int:
        return self._dim(self.engine_)

    def _trained(self, fold: int) -> tuple[Any, float]:
        """A network that learned from the queries outside a fold, and its loss in the last epoch."""
        import torch

        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(int(np.random.default_rng(self.random_state).integers(2**31)))
            engine, examples = self._learned_from
            return self._taught(engine, examples, self.fold_of_ != fold)

    def _taught(self, engine: Engine, examples: Examples, known: NDArray[np.bool_]) -> tuple[Any, float]:
        """The same, from some of the queries (m,)."""
        import torch

        loss_of_epoch = 0.0
        reader, rng = _Reader(self, engine), np.random.default_rng(self.random_state)
        network = self._network(reader.values.shape[1])
        optimizer = torch.optim.AdamW(network.rates(self.learning_rate), weight_decay=self.weight_decay)
        needed, place = np.unique(examples.passages, return_inverse=True)
        edges = np.searchsorted(examples.asked, np.arange(len(examples.queries) + 1))
        teaching = np.unique(examples.asked[examples.relevant])
        teaching = teaching[known[teaching]]
        for _ in track(range(self.epochs if len(teaching) else 0), "learning context"):
            vectors, losses = reader.context(network, needed), []
            share = float(network.share.detach()) if self._itself else 1.0
            vectors = share * vectors + (1 - share) * reader.own[needed]
            order = rng.permutation(teaching)
            for start in range(0, len(order), self.batch_size):
                some, picked = order[start : start + self.batch_size], []
                products = examples.queries[some] @ vectors.T
                for row, query in enumerate(some.tolist()):
                    part = slice(edges[query], edges[query + 1])
                    first, end = examples.begins[edges[query]], examples.begins[edges[query + 1]]
                    scores = products[row, place[first:end]]
                    best = best_passages(scores, examples.begins[edges[query] : edges[query + 1] + 1] - first)
                    right = examples.relevant[part]
                    pool = np.flatnonzero(~right)
                    pool = pool[np.argsort(-scores[best[pool]], kind="stable")[: self.n_train]]
                    drawn = rng.choice(pool, size=min(self.n_negatives, len(pool)), replace=False)
                    chosen = np.concatenate([np.flatnonzero(right), drawn])
                    picked.append((np.full(len(chosen), query), examples.passages[first + best[chosen]], right[chosen]))
                query, passages, right = (np.concatenate(column) for column in zip(*picked, strict=True))
                made = reader.made(network, passages, examples.own[query])[0]
                asking = torch.from_numpy(examples.queries[query]).to(made)
                scores = (made * asking).sum(1)
                if self._itself:
                    own = torch.from_numpy(reader.own[passages]).to(made)
                    scores = network.share * scores + (1 - network.share) * (own * asking).sum(1)
                number = np.unique(query, return_inverse=True)[1]
                loss = ranking_loss(scores * network.log_scale.exp(), number, right, self.loss)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            loss_of_epoch = float(np.mean(losses))
        return network.eval(), loss_of_epoch

    def _parts(self, asked: QueryCandidates, batch: QueryBatch, fold: int) -> Floats:
        contexts = self._stored(batch.engine, fold)[asked.passages]
        mask = self._hidden(batch.engine)
        if mask is not None and asked.own >= 0:
            graph = graph_of(batch.engine).graph
            if self.relations == "paths":
                linked = np.concatenate([graph.cited(asked.own), graph.citing(asked.own)])
                changed = np.isin(graph.doc_of[asked.passages], linked)
            else:
                changed = np.isin(asked.passages, near(graph, asked.own, self.layers))
            if changed.any():
                contexts[changed] = _Reader(self, batch.engine).context(
                    self.network(fold), asked.passages[changed], asked.own
                )
        found = contexts @ np.asarray(batch.vectors[asked.row], dtype=np.float32)
        return np.stack([asked.scores[asked.passages], found], axis=1) if self._itself else found[:, None]

    def _weights(self, fold: int) -> Scores:
        share = float(self.network(fold).share.detach())
        return np.array([1 - share, share]) if self._itself else np.ones(1)

    def context_vectors(self) -> Floats:
        """(n_passages, d) every passage in context, as a query from no document sees it; of LiM only the context."""
        self.check_fitted()
        return self._stored(self.engine_, -1).copy()

    def _stored(self, engine: Engine, fold: int) -> Floats:
        """The same by the network that did not see a fold, made once."""
        if self._contexts is None or self._contexts[0] is not engine.collection:
            self._contexts = engine.collection, {}
        made = self._contexts[1]
        if fold not in made:
            reader = _Reader(self, engine)
            made[fold] = reader.context(self.network(fold), np.arange(reader.graph.n_passages))
        return made[fold]

    def _around(self, batch: QueryBatch, asked: QueryCandidates, passage: int) -> list[Share]:
        """What each neighbour adds through the last layer, which is linear in what neighbours have."""
        share = self._weights(-1)[-1]
        query = np.asarray(batch.vectors[asked.row], dtype=np.float32)
        carried = _Reader(self, batch.engine).carried(self.network(), passage, asked.own, query)
        shares = []
        for relation, nodes, value in carried:
            called, text = self._neighbour(batch.engine, nodes)
            shares.append(Share(f"{relation}: {called}", share * value, text))
        return shares

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        super().load_state(folder, facts, engine)
        self._contexts = None

    @property
    def fit_report_(self) -> dict[str, Any]:
        network = self.network()
        names = [*(PATHS if self.relations == "paths" else RELATIONS), "itself"]
        weights = network.layers[-1].weight.detach().cpu().numpy()
        found = {"training queries": len(self.query_ids_), "loss": self.loss_}
        if self._itself:
            found["λ"] = float(network.share.detach())
        if self.kind == "lim":
            names = names[:-1] if self.relations == "paths" else names
        return found | {f"w of {name}": float(weight) for name, weight in zip(names, weights, strict=False)}


class _Reader:
    """What networks read of an engine's graph."""

    def __init__(self, ranker: GraphContext, engine: Engine) -> None:
        view = graph_of(engine)
        self.ranker, self.graph, self.paths = ranker, view.graph, view.paths
        self.own = np.asarray(view.vectors.passages, dtype=np.float32)
        self.values: Floats = engine.cached("node vectors", view.vectors.dense)
        self.mask: Mask | None = ranker._hidden(engine)
        self.context_only = ranker.kind == "lim"
        self.sums: Sums = engine.cached("node sums", lambda: self.paths.sums(self.values))

    def made(self, network: Any, passages: Ints, own: Ints | int) -> tuple[Any, Any, Any, Any]:
        """``((n, d) passages in context, what the last layer read, its α, what it read it along)``."""
        import torch

        device = network.balance.device

        def tensor(array: Any) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        if self.ranker.relations == "paths":
            means = self.paths.means(self.values, passages, own, self.mask, self.sums)
            target, relation = np.nonzero((means != 0).any(axis=2))
            given = tensor(self.own[passages]), tensor(means[target, relation]), tensor(target), tensor(relation)
            made, read, alpha = network.of_means(*given, context_only=self.context_only)
            return made, read, alpha, (target, relation)
        found = neighbourhoods(self.graph, passages, self.ranker.layers, own, self.mask, context_only=self.context_only)
        edges = (tensor(each) for each in (found.source, found.target, found.relation))
        is_section = tensor(found.nodes >= self.graph.n_passages)
        n_blind = len(passages) if self.context_only else 0
        made, read, alpha = network.last(tensor(self.values[found.nodes]), is_section, *edges, n_blind)
        return made[: len(passages)], read, alpha, found

    def context(self, network: Any, passages: Ints, own: int = -1) -> Floats:
        """(n, d) passages in context, for a query from one document or none."""
        import torch

        out = np.empty((len(passages), self.values.shape[1]), dtype=np.float32)
        training = network.training
        network.eval()
        with torch.no_grad():
            for start in range(0, len(passages), _CHUNK):
                some = passages[start : start + _CHUNK]
                out[start : start + _CHUNK] = self.made(network, some, own)[0].cpu().numpy()
        network.train(training)
        return out

    def carried(self, network: Any, passage: int, own: int, query: Floats) -> Iterator[tuple[str, Ints, float]]:
        """``(relation, nodes, inner product of the query with what they add)`` of one passage in context."""
        import torch

        layer = network.layers[-1]
        with torch.no_grad():
            asking = torch.from_numpy(query).to(network.balance.device)
            _, read, alpha, along = self.made(network, np.array([passage]), own)
            if self.ranker.relations == "paths":
                path_of = along[1]
                toward = {
                    PATHS[relation]: layer.carried(relation, alpha[place], asking).cpu().numpy()
                    for place, relation in enumerate(path_of.tolist())
                }
                for path, nodes, weight in self.paths.neighbours(passage, own, self.mask):
                    if path in toward:
                        yield path, nodes, weight * float(self.values[nodes].sum(axis=0) @ toward[path])
                itself = [] if self.context_only else [(len(PATHS), alpha[-1], read[-1])]
            else:
                itself = []
                for place in np.flatnonzero(along.target == 0).tolist():
                    relation, source = int(along.relation[place]), int(along.source[place])
                    if relation == len(RELATIONS):
                        itself.append((relation, alpha[place], read[source]))
                        continue
                    value = layer.carried(relation, alpha[place], asking) @ read[source]
                    yield RELATIONS[relation], along.nodes[[source]], float(value)
            total = sum(float(layer.carried(relation, each, asking) @ value) for relation, each, value in itself)
            if network.residual and not self.context_only:
                total += float(asking @ read[0 if self.ranker.relations == "edges" else -1])
            if itself:
                yield "itself", np.array([passage]), total


def ranking_loss(scores: Any, query: Ints, relevant: Any, kind: str) -> Any:
    """The mean over queries of the loss of their documents, a torch scalar.

    Parameters
    ----------
    scores : (n,) torch tensor
    query : (n,) int
        From 0, none left out.
    relevant : (n,) bool
    kind : {"listwise", "pairwise"}
        The mean over relevant documents of −log softmax, among these and the others; or over pairs of −log σ(s⁺ − s⁻).
    """
    import torch

    from haybale.context.networks.attention import segment_softmax

    n = int(query.max()) + 1
    if kind == "listwise":
        segment = torch.from_numpy(query).to(scores.device)
        right = torch.from_numpy(relevant / np.maximum(np.bincount(query, relevant, n), 1)[query]).to(scores)
        return -(right * segment_softmax(scores[:, None], segment, n)[:, 0].clamp_min(1e-30).log()).sum() / n
    losses = [
        torch.nn.functional.softplus(scores[of & ~relevant][None] - scores[of & relevant][:, None]).mean()
        for of in (query == number for number in range(n))
        if (of & ~relevant).any()
    ]
    return torch.stack(losses).mean() if losses else scores.sum() * 0
