"""Models on disk: numbers as safetensors, ids as Parquet, the rest as JSON. Nothing in them can be executed.

    manifest.json          format, version, kind, parameters, γ, and the SHA-256 of every other file
    tensors.safetensors    support vectors, coefficients, scalings
    queries.parquet        ids of the support queries (ensembles)
    passages.parquet       ids of the support passages (ensembles)

A model is what its support is, whichever solver found it and wherever it was: loading needs no solver, and the files
do not say on which device it was trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy import sparse

from haybale.device import to_numpy
from haybale.ensemble.blending import Blend
from haybale.ensemble.half import Half
from haybale.ensemble.spaces import Scaling, Spaces
from haybale.ensemble.support import Support
from haybale.errors import FileFormatError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, check_files, read_manifest, read_tensors, write_manifest

if TYPE_CHECKING:
    from haybale.ensemble.product_kernel_svr import ProductKernelSVR
    from haybale.ensemble.scoring import EnsembleScorer

FORMAT, VERSION = "haybale model", 1
_TENSORS = "tensors.safetensors"
_IDS = {"support_query_ids_": "queries.parquet", "support_passage_ids_": "passages.parquet"}
_COLUMNS = ("query", "passage", "coef", "label", "offsets", "intercept")
_ENSEMBLE_FACTS = ("n_rows_", "bag_sizes_", "n_iter_", "oob_score_", "oob_mrr_")
_SVR_FACTS = ("n_features_in_", "n_iter_")
_OPTIONAL = ("interactions", "evidence", "evidence_root")

Tensors = dict[str, NDArray[Any]]
E = TypeVar("E", bound="EnsembleScorer")
S = TypeVar("S", bound="ProductKernelSVR")


def save_ensemble(model: EnsembleScorer, folder: Path) -> None:
    """Write a trained ensemble; the folder must be new or empty."""
    tensors = _support_tensors(model.support_) | _space_tensors(model.spaces_)
    if model.centroids_ is not None:
        tensors["centroids"] = model.centroids_
    if model.blend_ is not None:
        blend = model.blend_
        tensors |= {
            "blend.weights": blend.weights,
            "blend.tried": np.array(blend.tried),
            "blend.mrr": np.array(blend.mrr),
        }
    if model.features_ is not None:
        tensors |= _scaling_tensors("features", model.features_)
    facts = {name: getattr(model, name) for name in _ENSEMBLE_FACTS if hasattr(model, name)}
    with whole_folder(folder) as aside:
        for name, file in _IDS.items():
            pq.write_table(pa.table({"id": pa.array(getattr(model, name), type=pa.large_string())}), aside / file)
        _write(aside, "SVREnsemble", model, tensors, {"eta": model.support_.eta, "facts": facts})


def load_ensemble(cls: type[E], folder: Path) -> E:
    """A saved ensemble without its index."""
    manifest, tensors = _read(folder, "SVREnsemble")
    model: E = _estimator(cls, manifest, folder)
    model.support_, model.spaces_ = _support(tensors, manifest, folder), _spaces(tensors, manifest, folder)
    model.centroids_ = tensors.get("centroids")
    model.features_ = _scaling(tensors, "features", folder) if "features.factor" in tensors else None
    model.blend_ = None
    if "blend.weights" in tensors:
        tried, mrr = (_tensor(tensors, f"blend.{name}", folder).tolist() for name in ("tried", "mrr"))
        model.blend_ = Blend(tensors["blend.weights"], tried, mrr)
    sizes = {"support_query_ids_": len(model.support_.queries), "support_passage_ids_": len(model.support_.passages)}
    for name, file in _IDS.items():
        ids = _ids(folder / file)
        if len(ids) != sizes[name]:
            raise FileFormatError(folder / file, None, f"expected {sizes[name]} ids, found {len(ids)}")
        setattr(model, name, ids)
    model.gamma_ = model.spaces_.gamma[0]
    _set_facts(model, manifest, _ENSEMBLE_FACTS)
    return model


def save_svr(model: ProductKernelSVR, folder: Path) -> None:
    """Write one trained regressor; the folder must be new or empty."""
    tensors = _support_tensors(model.expansion_) | _space_tensors(model.spaces_) | {"support_rows": model.support_}
    facts = {name: getattr(model, name) for name in _SVR_FACTS}
    with whole_folder(folder) as aside:
        _write(aside, "ProductKernelSVR", model, tensors, {"eta": 0.0, "facts": facts})


def load_svr(cls: type[S], folder: Path) -> S:
    """A saved regressor."""
    manifest, tensors = _read(folder, "ProductKernelSVR")
    model: S = _estimator(cls, manifest, folder)
    model.expansion_, model.spaces_ = _support(tensors, manifest, folder), _spaces(tensors, manifest, folder)
    model.support_ = _tensor(tensors, "support_rows", folder)
    model.dual_coef_, model.intercept_ = model.expansion_.coef[None], model.expansion_.intercept
    model.gamma_ = model.spaces_.gamma
    model._interaction_factor = np.float32(np.sqrt(model.gamma_[0][1]))
    _set_facts(model, manifest, _SVR_FACTS)
    return model


# writing --------------------------------------------------------------------------------------------------


def _write(folder: Path, kind: str, model: Any, tensors: Tensors, more: dict[str, Any]) -> None:
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / _TENSORS)
    values = model.get_params(deep=False)
    parameters = {name: _plain(name, value) for name, value in values.items() if name != "device"}
    gamma = [list(pair) for pair in model.spaces_.gamma]
    head = {"format": FORMAT, "version": VERSION, "kind": kind}
    write_manifest(folder, head | {"parameters": parameters, "gamma": gamma} | more)


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON; a pair stays apart from a list, and a solver of one's own is left out (null)."""
    if name == "solver" and not isinstance(value, str):
        return None
    if isinstance(value, tuple):
        return {"tuple": [_plain(name, item) for item in value]}
    if isinstance(value, list):
        return [_plain(name, item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _support_tensors(support: Support) -> Tensors:
    tensors = _half_tensors("queries", support.queries) | _half_tensors("passages", support.passages)
    tensors |= {name: getattr(support, name) for name in _COLUMNS}
    return tensors | {name: value for name in _OPTIONAL if (value := getattr(support, name)) is not None}


def _half_tensors(name: str, half: Half) -> Tensors:
    tensors: Tensors = {} if half.dense is None else {f"{name}.dense": to_numpy(half.dense)}
    if half.sparse is not None:
        parts = {part: np.asarray(getattr(half.sparse, part)) for part in ("data", "indices", "indptr")}
        tensors |= {f"{name}.sparse.{part}": value for part, value in parts.items()}
        tensors[f"{name}.sparse.shape"] = np.array(half.sparse.shape, dtype=np.int64)
    return tensors


def _space_tensors(spaces: Spaces) -> Tensors:
    tensors: Tensors = {}
    for number, (query, passage) in enumerate(zip(spaces.query, spaces.passage, strict=True)):
        tensors |= _scaling_tensors(f"space{number}.query", query) | _scaling_tensors(f"space{number}.passage", passage)
    return tensors


def _scaling_tensors(name: str, scaling: Scaling) -> Tensors:
    tensors: Tensors = {f"{name}.factor": np.asarray(scaling.factor)}
    if scaling.shift is None:
        return tensors | {f"{name}.columns": np.array(scaling.columns, dtype=np.int64)}
    return tensors | {f"{name}.shift": scaling.shift}


# reading --------------------------------------------------------------------------------------------------


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """The manifest and the tensors, after every file has been found to be what was written."""
    manifest = read_manifest(folder, "model", {"format": FORMAT, "version": VERSION, "kind": kind})
    expected = {"parameters": dict, "gamma": list, "facts": dict, "eta": (int, float)}
    for name, kinds in expected.items():
        if not isinstance(manifest.get(name), kinds):  # type: ignore[arg-type]
            raise FileFormatError(folder / MANIFEST, None, f"{name!r} is missing or of another type")
    check_files(folder, manifest, {_TENSORS, *(_IDS.values() if kind == "SVREnsemble" else ())})
    return manifest, read_tensors(folder / _TENSORS)


def _estimator(cls: Any, manifest: dict[str, Any], folder: Path) -> Any:
    parameters = {name: _unplain(value) for name, value in manifest["parameters"].items()}
    if parameters.get("solver") is None:
        parameters.pop("solver", None)  # a solver of one's own: the default takes its place
    try:
        model = cls(**parameters)
        model._validate_params()
    except (TypeError, ValueError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"parameters: {error}") from None
    return model


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_unplain(item) for item in value.get("tuple", ()))
    return [_unplain(item) for item in value] if isinstance(value, list) else value


def _set_facts(model: Any, manifest: dict[str, Any], names: tuple[str, ...]) -> None:
    """Fitted attributes that are plain values; names that are none of these are ignored."""
    for name in names:
        if name in manifest["facts"]:
            setattr(model, name, manifest["facts"][name])


def _tensor(tensors: Tensors, name: str, folder: Path) -> NDArray[Any]:
    if name not in tensors:
        raise FileFormatError(folder / _TENSORS, None, f"tensor {name!r} is missing")
    return tensors[name]


def _half(tensors: Tensors, name: str, folder: Path) -> Half:
    wide = None
    if f"{name}.sparse.data" in tensors:
        parts = [_tensor(tensors, f"{name}.sparse.{part}", folder) for part in ("data", "indices", "indptr", "shape")]
        wide = sparse.csr_matrix(tuple(parts[:3]), shape=tuple(parts[3].tolist()))
        wide.check_format(full_check=True)
    dense = tensors.get(f"{name}.dense")
    if dense is None and wide is None:
        raise FileFormatError(folder / _TENSORS, None, f"tensor '{name}.dense' is missing")
    return Half(dense, wide)


def _scaling(tensors: Tensors, name: str, folder: Path) -> Scaling:
    shift = tensors.get(f"{name}.shift")
    columns = int(_tensor(tensors, f"{name}.columns", folder).item()) if shift is None else None
    return Scaling(shift, _tensor(tensors, f"{name}.factor", folder), columns)


def _spaces(tensors: Tensors, manifest: dict[str, Any], folder: Path) -> Spaces:
    numbers = range(len(manifest["gamma"]))
    return Spaces(
        tuple(_scaling(tensors, f"space{number}.query", folder) for number in numbers),
        tuple(_scaling(tensors, f"space{number}.passage", folder) for number in numbers),
        tuple((float(q), float(p)) for q, p in manifest["gamma"]),
    )


def _support(tensors: Tensors, manifest: dict[str, Any], folder: Path) -> Support:
    columns: dict[str, Any] = {name: tensors.get(name) for name in _OPTIONAL}
    try:
        columns |= {name: _tensor(tensors, name, folder) for name in _COLUMNS}
        return Support(
            queries=_half(tensors, "queries", folder),
            passages=_half(tensors, "passages", folder),
            eta=float(manifest["eta"]),
            **columns,
        ).checked()
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(folder / _TENSORS, None, str(error)) from None


def _ids(path: Path) -> list[str]:
    try:
        return list(pq.read_table(path, columns=["id"]).column("id").to_pylist())
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(path, None, f"expected a Parquet file with a column 'id': {error}") from None
