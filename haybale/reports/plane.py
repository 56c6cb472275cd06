"""Vectors laid into the plane: t-SNE or UMAP.

van der Maaten & Hinton, "Visualizing Data using t-SNE", JMLR 9, 2008; McInnes, Healy & Melville, "UMAP", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.manifold import TSNE

from haybale.errors import UnknownNameError
from haybale.extras import require
from haybale.vectors import Matrix

PICTURES = ("tsne", "umap", "none")
NAMES = {"tsne": "t-SNE", "umap": "UMAP"}
WIDTH = 50  # to which vectors are reduced first, as van der Maaten & Hinton do
FEWEST = 10  # points of which a picture can be made


def check_picture(name: str) -> None:
    """Refuse an unknown picture, and UMAP where it is not installed."""
    if name not in PICTURES:
        raise UnknownNameError("picture", name, PICTURES)
    if name == "umap":
        require("umap", "umap")


def in_plane(vectors: Matrix, method: str, random_state: int) -> NDArray[np.float64]:
    """(n, d) vectors, dense or CSR, to (n, 2), by ``"tsne"`` or ``"umap"``, over their first 50 dimensions."""
    n, d = vectors.shape
    width = min(WIDTH, n - 1, d - 1)
    if sparse.issparse(vectors):
        reduced = TruncatedSVD(width, random_state=random_state).fit_transform(vectors)
    elif d > WIDTH:
        reduced = PCA(width, random_state=random_state).fit_transform(vectors)
    else:
        reduced = np.asarray(vectors)
    reduced = np.ascontiguousarray(reduced, dtype=np.float32)
    plane: Any
    if method == "umap":
        plane = require("umap", "umap").UMAP(n_neighbors=min(15, n - 1), random_state=random_state, n_jobs=1)
    else:
        plane = TSNE(
            init="pca", perplexity=min(30.0, (n - 1) / 3), learning_rate="auto", random_state=random_state, n_jobs=1
        )
    return np.asarray(plane.fit_transform(reduced), dtype=np.float64)
