"""Models on disk: numbers as safetensors, ids as Parquet, the rest as JSON. Nothing in them can be executed.

    manifest.json          format, version, kind, parameters, γ, and the SHA-256 of every other file
    tensors.safetensors    support vectors, coefficients, scalings
    queries.parquet        ids of the support queries (ensembles)
    passages.parquet       ids of the support passages (ensembles)

A model is what its support is, whichever solver found it and wherever it was: loading needs no solver, and the files
do not say on which device it was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy import sparse

from haybale.device import to_numpy
from haybale.ensemble.kernel import Points
from haybale.ensemble.spaces import Scaling, Spaces
from haybale.ensemble.support import Support
from haybale.errors import FileFormatError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, check_files, read_manifest, read_tensors, write_manifest

FORMAT, VERSION = "haybale model", 2  # 1 had parameters that are gone
_TENSORS = "tensors.safetensors"
_COLUMNS = ("query", "passage", "coef", "label", "offsets", "intercept")
_OPTIONAL = ("features", "features_root")

Tensors = dict[str, NDArray[Any]]
M = TypeVar("M")


@dataclass(frozen=True)
class Saved:
    """What is kept of a model beside its parameters."""

    support: Support
    spaces: Spaces
    facts: dict[str, Any]  # plain values
    ids: dict[str, list[str]]
    scalings: dict[str, Scaling]
    tensors: Tensors  # all there are


def save_model(
    folder: Path,
    kind: str,
    parameters: Mapping[str, Any],
    support: Support,
    spaces: Spaces,
    *,
    facts: dict[str, Any],
    ids: Mapping[str, Sequence[str]] | None = None,
    scalings: Mapping[str, Scaling] | None = None,
    tensors: Tensors | None = None,
) -> None:
    """Write a trained model; the folder must be new or empty."""
    found = _points_tensors("queries", support.queries) | _points_tensors("passages", support.passages)
    found |= tensors or {}
    found |= {name: getattr(support, name) for name in _COLUMNS}
    found |= {name: value for name in _OPTIONAL if (value := getattr(support, name)) is not None}
    for number, halves in enumerate(zip(spaces.query, spaces.passage, strict=True)):
        for name, scaling in zip(("query", "passage"), halves, strict=True):
            found |= _scaling_tensors(f"space{number}.{name}", scaling)
    for name, scaling in (scalings or {}).items():
        found |= _scaling_tensors(name, scaling)
    with whole_folder(folder) as aside:
        for name, values in (ids or {}).items():
            pq.write_table(pa.table({"id": pa.array(values, type=pa.large_string())}), aside / f"{name}.parquet")
        save_file({name: np.ascontiguousarray(value) for name, value in found.items()}, aside / _TENSORS)
        plain = {name: _plain(name, value) for name, value in parameters.items() if name != "device"}
        gamma = [list(pair) for pair in spaces.gamma]
        head = {"format": FORMAT, "version": VERSION, "kind": kind, "parameters": plain, "gamma": gamma}
        write_manifest(aside, head | {"eta": support.eta, "facts": facts})


def load_model(folder: Path, kind: str, make: Callable[..., M], ids: Sequence[str] = ()) -> tuple[M, Saved]:
    """A saved model, not fitted, as ``make`` makes it of its parameters; and what it has to be given.

    Every file is found to be what was written first; else :class:`FileFormatError`.
    """
    manifest = read_manifest(folder, "model", {"format": FORMAT, "version": VERSION, "kind": kind})
    expected: dict[str, Any] = {"parameters": dict, "gamma": list, "facts": dict, "eta": (int, float)}
    for name, kinds in expected.items():
        if not isinstance(manifest.get(name), kinds):
            raise FileFormatError(folder / MANIFEST, None, f"{name!r} is missing or of another type")
    check_files(folder, manifest, {_TENSORS, *(f"{name}.parquet" for name in ids)})
    parameters = {name: _unplain(value) for name, value in manifest["parameters"].items()}
    if parameters.get("solver") is None:
        parameters.pop("solver", None)  # a solver of one's own: the default takes its place
    try:
        model: Any = make(**parameters)
        model._validate_params()
    except (TypeError, ValueError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"parameters: {error}") from None
    tensors = read_tensors(folder / _TENSORS)
    try:
        support, spaces = _support(tensors, float(manifest["eta"])), _spaces(tensors, manifest["gamma"])
        known = {name.removesuffix(".factor") for name in tensors if name.endswith(".factor")}
        scalings = {name: _scaling(tensors, name) for name in known if not name.startswith("space")}
    except KeyError as error:
        raise FileFormatError(folder / _TENSORS, None, f"tensor {error} is missing") from None
    except ValueError as error:
        raise FileFormatError(folder / _TENSORS, None, str(error)) from None
    texts = {name: _ids(folder / f"{name}.parquet", len(getattr(support, name))) for name in ids}
    return model, Saved(support, spaces, manifest["facts"], texts, scalings, tensors)


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON; a pair stays apart from a list, and a solver of one's own is left out (null)."""
    if name == "solver" and not isinstance(value, str):
        return None
    if isinstance(value, tuple):
        return {"tuple": [_plain(name, item) for item in value]}
    if isinstance(value, list):
        return [_plain(name, item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_unplain(item) for item in value.get("tuple", ()))
    return [_unplain(item) for item in value] if isinstance(value, list) else value


def _points_tensors(name: str, points: Points) -> Tensors:
    tensors: Tensors = {} if points.dense is None else {f"{name}.dense": to_numpy(points.dense)}
    if points.sparse is not None:
        wide = to_numpy(points.sparse)
        tensors |= {f"{name}.sparse.{part}": np.asarray(getattr(wide, part)) for part in ("data", "indices", "indptr")}
        tensors[f"{name}.sparse.shape"] = np.array(wide.shape, dtype=np.int64)
    return tensors


def _points(tensors: Tensors, name: str) -> Points:
    wide = None
    if f"{name}.sparse.data" in tensors:
        data, indices, indptr, shape = (tensors[f"{name}.sparse.{p}"] for p in ("data", "indices", "indptr", "shape"))
        wide = sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        wide.check_format(full_check=True)
    return Points(tensors.get(f"{name}.dense") if wide is not None else tensors[f"{name}.dense"], wide)


def _scaling_tensors(name: str, scaling: Scaling) -> Tensors:
    tensors: Tensors = {f"{name}.factor": np.asarray(scaling.factor)}
    if scaling.shift is None:
        return tensors | {f"{name}.columns": np.array(scaling.columns, dtype=np.int64)}
    return tensors | {f"{name}.shift": scaling.shift}


def _scaling(tensors: Tensors, name: str) -> Scaling:
    shift = tensors.get(f"{name}.shift")
    columns = int(tensors[f"{name}.columns"].item()) if shift is None else None
    return Scaling(shift, tensors[f"{name}.factor"], columns)


def _spaces(tensors: Tensors, gamma: list[Any]) -> Spaces:
    query = tuple(_scaling(tensors, f"space{number}.query") for number in range(len(gamma)))
    passage = tuple(_scaling(tensors, f"space{number}.passage") for number in range(len(gamma)))
    return Spaces(query, passage, tuple((float(q), float(p)) for q, p in gamma))


def _support(tensors: Tensors, eta: float) -> Support:
    columns: dict[str, Any] = {name: tensors[name] for name in _COLUMNS}
    columns |= {name: tensors.get(name) for name in _OPTIONAL}
    queries, passages = _points(tensors, "queries"), _points(tensors, "passages")
    return Support(queries=queries, passages=passages, eta=eta, **columns).checked()


def _ids(path: Path, n: int) -> list[str]:
    try:
        ids = list(pq.read_table(path, columns=["id"]).column("id").to_pylist())
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(path, None, f"expected a Parquet file with a column 'id': {error}") from None
    if len(ids) != n:
        raise FileFormatError(path, None, f"expected {n} ids, found {len(ids)}")
    return ids
