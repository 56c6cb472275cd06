"""Run the kernels of a ``.cu`` file on the CPU, compiled by g++ as plain C++ (``cuda_on_cpu.hpp``)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from haybale.device_kernels import KernelFile

HEADER = Path(__file__).with_name("cuda_on_cpu.hpp")
SANITIZERS = os.environ.get("HAYBALE_KERNEL_SANITIZERS", "")  # such as "address,undefined"
MOST_SHARED_UNASKED = 48 * 1024  # bytes of shared memory that a kernel has without asking for more
# The macro with the number of blocks of a cluster, if a kernel has one; its name; and its parameters.
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:CLUSTER_OF\((\w+)\)\s+)?(?:__launch_bounds__\([^)]*\)\s+)?'
    r"(\w+)\s*\(([^)]*)\)"
)
_TYPES = {
    "float": np.float32,
    "double": np.float64,
    "char": np.int8,
    "signed char": np.int8,
    "unsigned char": np.uint8,
    "bool": np.bool_,
    "short": np.int16,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
}
Dims = Sequence[int]


class KernelsOnCPU:
    """The kernels of CUDA C++ source, by name.

    ``parameters`` holds, for each kernel, the type of each parameter and whether it is a pointer.
    """

    def __init__(self, source: str) -> None:
        source_without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)
        kernels = _KERNEL.findall(source_without_comments)
        macros = dict(reversed(re.findall(r"#define (\w+) (.+)", source_without_comments)))  # the first one counts
        self.parameters = {
            name: [_parameter(text, macros) for text in columns.split(",") if text.strip()]
            for _, name, columns in kernels
        }
        clusters = {name: int(macros.get(blocks, 1)) for blocks, name, _ in kernels}
        self._library = ctypes.CDLL(str(_compiled(source, self.parameters, clusters)))

    def launch(
        self, name: str, grid: Dims, block: Dims, arguments: Sequence[Any], shared: int = 0, order: int = 0
    ) -> None:
        """Run a kernel for each block or cluster of blocks, one after the other.

        ``arguments`` are C-contiguous NumPy arrays and NumPy scalars of exactly the types of the parameters. ``order``
        is the order of the threads between barriers: 0 rising, 1 falling, other numbers random.
        """
        parameters = self.parameters[name]
        if len(parameters) != len(arguments):
            raise TypeError(f"{name} has {len(parameters)} parameters, found {len(arguments)} arguments")
        pointers = (ctypes.c_void_p * len(arguments))()
        kept = []
        for position, ((dtype, is_pointer), argument) in enumerate(zip(parameters, arguments, strict=True)):
            kind = np.ndarray if is_pointer else np.generic
            if not isinstance(argument, kind) or argument.dtype != dtype:
                raise TypeError(f"{name}, argument {position}: expected {kind.__name__} of {dtype}, found {argument!r}")
            if is_pointer and not argument.flags.c_contiguous:
                raise TypeError(f"{name}, argument {position}: the array is not contiguous")
            value = np.array([argument.ctypes.data], dtype=np.uint64) if is_pointer else np.array([argument])
            kept.append(value)
            pointers[position] = value.ctypes.data
        function = getattr(self._library, f"launch_{name}")
        function.restype = ctypes.c_char_p
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        failure = function(*map(ctypes.c_uint, sizes), ctypes.c_size_t(shared), ctypes.c_uint(order), pointers)
        if failure:
            raise RuntimeError(f"{name}: {failure.decode()}")


def has_compiler() -> bool:
    """Return whether g++ is installed."""
    return shutil.which("g++") is not None


@cache
def _kernels(source: str) -> KernelsOnCPU:
    return KernelsOnCPU(source)


def kernels_of_source(source: str) -> KernelsOnCPU:
    """Return the kernels of a source; skip the test without a compiler."""
    if not has_compiler():
        import pytest

        pytest.skip("g++ is not installed")
    return _kernels(source)


def kernels_of(path: Path) -> KernelsOnCPU:
    """Return the kernels of a file of haybale; skip the test without a compiler."""
    return kernels_of_source(KernelFile(path).source)


def _parameter(text: str, macros: dict[str, str]) -> tuple[str, bool]:
    """Return the NumPy type of a parameter, and whether it is a pointer."""
    words = re.sub(r"\b(const|__restrict__)\b", " ", text).replace("*", " * ").split()
    kind = " ".join(word for word in words[:-1] if word != "*")
    return np.dtype(_TYPES[macros.get(kind, kind).strip()]).name, "*" in words


def _compiled(source: str, parameters: dict[str, list[tuple[str, bool]]], clusters: dict[str, int]) -> Path:
    """Return a shared library of the kernels, compiled once for each version of the source."""
    names = {np.dtype(dtype).name: c for c, dtype in _TYPES.items()}
    launchers = []
    for name, kinds in parameters.items():
        casts = [
            f"*({names[dtype]}{'*' if is_pointer else ''}*)arguments[{position}]"
            for position, (dtype, is_pointer) in enumerate(kinds)
        ]
        launchers.append(
            f'extern "C" const char* launch_{name}(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, '
            f"unsigned bz, size_t shared, unsigned order, void** arguments) {{ return on_cpu::launch({{gx, gy, gz}}, "
            f"{{bx, by, bz}}, {clusters[name]}, shared, order, [&] {{ {name}({', '.join(casts)}); }}); }}"
        )
    whole = "\n".join([HEADER.read_text(), "#line 1", source, *launchers])
    flags = ["-O1", "-g", f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"] if SANITIZERS else ["-O2"]
    key = hashlib.sha256(" ".join([*flags, whole]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"haybale-kernels-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            file = Path(aside) / "kernels.cpp"
            file.write_text(whole)
            command = ["g++", "-std=c++17", "-Wall", "-Wno-unknown-pragmas", "-fPIC", "-shared", *flags, str(file)]
            run = subprocess.run([*command, "-o", f"{aside}/kernels.so"], capture_output=True, text=True, check=False)
            if run.returncode:
                raise RuntimeError(f"g++ did not compile the kernels:\n{run.stderr}")
            Path(f"{aside}/kernels.so").replace(library)
    return library
