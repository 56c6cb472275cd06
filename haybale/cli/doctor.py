"""``haybale doctor``."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from haybale.cli.application import MORE, command
from haybale.cli.terminal import console_for_tables, visible
from haybale.errors import HaybaleError
from haybale.versions import version_of


class Check(NamedTuple):
    """An optional feature: the module to import, its distribution on PyPI, and the extra that installs it."""

    feature: str
    module: str
    distribution: str
    extra: str


CHECKS = (
    Check("report charts", "matplotlib", "matplotlib", "reports"),
    Check("report pages", "jinja2", "jinja2", "reports"),
    Check("near-duplicates in reviews", "datasketch", "datasketch", "review"),
    Check("index backend cuvs", "cuvs", "cuvs-cu13", "gpu"),
    Check("index backend faiss-gpu", "faiss", "faiss-gpu-cuvs", "gpu"),
    Check("encoder sentence-transformers", "sentence_transformers", "sentence-transformers", "neural"),
    Check("encoder torch", "torch", "torch", "neural"),
    Check("encoder backend openvino", "openvino", "openvino", "openvino"),
    Check("fine-tuning", "accelerate", "accelerate", "train"),
    Check("fine-tuning: data sets", "datasets", "datasets", "train"),
    Check("fine-tuning: LoRA adapters", "peft", "peft", "train"),
    Check("CuPy (arrays on a GPU)", "cupy", "cupy-cuda13x", "gpu"),
    Check("cuML (SVR on a GPU)", "cuml", "cuml-cu13", "gpu"),
    Check("cuDF (frames on a GPU)", "cudf", "cudf-cu13", "gpu"),
    Check("Dask cluster", "distributed", "distributed", "dask"),
    Check("ir_datasets collections", "ir_datasets", "ir_datasets", "ir_datasets"),
    Check("PyTerrier transformers", "pyterrier", "pyterrier", "pyterrier"),
)


def examine(check: Check) -> tuple[bool, str, str]:
    """Return ``(usable, version, remark)``; the remark of a missing package is the command that installs it."""
    number = version_of(check.distribution) or "?"
    try:
        module = importlib.import_module(check.module)
        return True, number, _remark(check, module)
    except ModuleNotFoundError:
        return False, "", f'pip install "haybale[{check.extra}]"'
    except HaybaleError as error:
        return False, number, str(error)
    except Exception as error:  # a broken installation may raise any error, and CuPy raises its own without a driver
        return False, number, f"{type(error).__name__}: {error}"


def _remark(check: Check, module: Any) -> str:
    """Return what is usable of an imported module; raise an error if nothing is."""
    from haybale.retrieval.backends import BACKENDS

    backend = check.feature.removeprefix("index backend ")
    if backend in ("cuvs", "faiss-gpu") and (error := BACKENDS[backend].missing()) is not None:
        raise error
    if check.module == "torch":
        return "with CUDA" if module.cuda.is_available() else "CPU only"
    if check.module != "cupy":
        return ""
    devices = []
    for number in range(module.cuda.runtime.getDeviceCount()):
        name = module.cuda.runtime.getDeviceProperties(number)["name"].decode()
        free, total = module.cuda.Device(number).mem_info
        devices.append(f"cuda:{number} {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "; ".join(devices)


@command(MORE)
def doctor() -> None:
    """List which optional features work on this machine, and how to install the others."""
    from rich.markup import escape
    from rich.table import Table

    from haybale.retrieval.backends import auto

    table = Table("", "feature", "version", "remark", title="haybale doctor", title_justify="left")
    for check in CHECKS:
        usable, number, remark = examine(check)
        table.add_row("[green]✓[/]" if usable else "[red]✗[/]", check.feature, number, escape(visible(remark)))
    console_for_tables().print(table)
    device, backend = auto()
    print(f"The device auto is {device}, the index backend auto is {backend}.")
