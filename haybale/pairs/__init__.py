"""Pairs of paragraphs read together: pair encoders, stored interactions, BERT-PLI, and the rankers that use them."""

from haybale.pairs.bert_pli import BERTPLI, PAPER
from haybale.pairs.cross_encoder import CrossEncoder
from haybale.pairs.interaction_store import Interacted, InteractionStore, interact
from haybale.pairs.interactions import SELECTIONS, Interactions, Reading
from haybale.pairs.max_sim import MaxSim
from haybale.pairs.pair_encoders import CrossPairs, PairEncoder, TokenPairs, VectorPairs
from haybale.pairs.pair_training import TrainedPairs, train_pair_encoder
from haybale.pairs.pli import PLI

__all__ = [
    "BERTPLI",
    "PAPER",
    "PLI",
    "SELECTIONS",
    "CrossEncoder",
    "CrossPairs",
    "Interacted",
    "InteractionStore",
    "Interactions",
    "MaxSim",
    "PairEncoder",
    "Reading",
    "TokenPairs",
    "TrainedPairs",
    "VectorPairs",
    "interact",
    "train_pair_encoder",
]
