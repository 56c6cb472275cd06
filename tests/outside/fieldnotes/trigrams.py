"""An encoder that counts hashed trigrams of letters."""

import zlib

import numpy as np

from haybale import Encoder


class Trigrams(Encoder):
    """Hash the trigrams of a text into ``dim`` counts, as a vector of length 1."""

    name = "trigrams"

    def __init__(self, dim=128):
        self.dim = dim

    def encode(self, texts):
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            padded = f" {text.lower()} "
            for start in range(len(padded) - 2):
                vector[zlib.crc32(padded[start : start + 3].encode()) % self.dim] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
