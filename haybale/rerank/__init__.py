"""Paragraphs read together: pairs to vectors, their interactions in a store, and what decides on a document by them."""

from haybale.rerank.bert_pli import BERTPLI, PAPER
from haybale.rerank.fine_tuning import TrainedPairs, train_pair_encoder
from haybale.rerank.interactions import SELECTIONS, Interactions, Reading
from haybale.rerank.pairs import CrossPairs, PairEncoder, TokenPairs, VectorPairs
from haybale.rerank.store import Interacted, InteractionStore, interact

__all__ = [
    "BERTPLI",
    "PAPER",
    "SELECTIONS",
    "CrossPairs",
    "Interacted",
    "InteractionStore",
    "Interactions",
    "PairEncoder",
    "Reading",
    "TokenPairs",
    "TrainedPairs",
    "VectorPairs",
    "interact",
    "train_pair_encoder",
]
