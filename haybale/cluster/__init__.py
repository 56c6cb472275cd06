"""Beyond one process: tasks on threads, processes or a Dask cluster, through joblib, done again where one is lost."""

from haybale.cluster.connecting import on_cluster
from haybale.cluster.spreading import spread

__all__ = ["on_cluster", "spread"]
