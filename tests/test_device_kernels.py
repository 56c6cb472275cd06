"""Every CUDA kernel: compiled by nvcc for the devices that haybale names, and run on the CPU as plain C++.

The tests of a kernel's results lie beside those of the module that calls it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cuda_on_cpu import KernelsOnCPU, has_compiler

import haybale
from haybale.device import Device
from haybale.device_kernels import KernelFile
from haybale.ensemble import batched_smo

SOURCES = sorted(Path(haybale.__file__).parent.rglob("*.cu"))
SAMPLE = """
extern "C" __global__ void total(const float* __restrict__ values, int n, float* out) {
    extern __shared__ unsigned char dynamic_shared[];
    float* sums = (float*)dynamic_shared;
    float sum = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        sum += values[blockIdx.x * n + k];
    sums[threadIdx.x] = sum;
    BARRIER
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        BARRIER
    }
    if (!threadIdx.x)
        out[blockIdx.x] = sums[0];
}
"""


FILES = {path.name: KernelFile(path) for path in SOURCES}
FILES |= {f"batched_smo.cu-{n_blocks}": batched_smo.kernels(32, n_blocks) for n_blocks in (1, 8)}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", FILES)
def test_nvcc_compiles_the_kernels(name: str, tmp_path: Path) -> None:
    """nvcc compiles a file for compute capability 8.0 and 9.0 and as PTX, without a warning and without spills."""
    architectures = "arch=compute_80,code=sm_80", "arch=compute_90,code=[sm_90,compute_90]"
    options = [option for architecture in architectures for option in ("-gencode", architecture)]
    strict = ["-std=c++17", "-ftz=true", "-Werror", "all-warnings", "-Xptxas", "-v", "-fatbin", "--threads", "2"]
    file = tmp_path / FILES[name].path.name
    file.write_text(FILES[name].source)
    command = ["nvcc", *strict, *options, str(file), "-o", str(tmp_path / "kernels.fatbin")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    spilled = [int(number) for number in re.findall(r"(\d+) bytes spill stores", run.stderr)]
    assert spilled, run.stderr
    assert max(spilled) == 0, run.stderr


def test_kernels_use_what_the_runtime_compiler_has() -> None:
    """NVRTC has no headers of the C++ library, and blocks share dynamic memory only."""
    for source in SOURCES:
        text = KernelFile(source).source
        assert "#include" not in text, source
        assert re.findall(r"__shared__ (?!unsigned char dynamic_shared\[\])", text) == [], source


@pytest.mark.skipif(not has_compiler(), reason="g++ is not installed")
@pytest.mark.parametrize("threads", [1, 32, 256])
@pytest.mark.parametrize("order", range(4))
def test_a_block_on_the_cpu_waits_at_its_barriers(threads: int, order: int) -> None:
    values = np.random.default_rng(0).integers(0, 9, size=(3, 1000)).astype(np.float32)
    out = np.zeros(3, dtype=np.float32)
    sample = KernelsOnCPU(SAMPLE.replace("BARRIER", "__syncthreads();"))
    sample.launch("total", [3], [threads], [values, np.int32(1000), out], 4 * threads, order)
    np.testing.assert_array_equal(out, values.sum(axis=1))


@pytest.mark.skipif(not has_compiler(), reason="g++ is not installed")
def test_a_missing_barrier_is_seen_on_the_cpu() -> None:
    sample, values = KernelsOnCPU(SAMPLE.replace("BARRIER", "")), np.ones((1, 1000), dtype=np.float32)
    out = np.zeros(1, dtype=np.float32)
    sample.launch("total", [1], [256], [values, np.int32(1000), out], 1024, 0)
    assert out[0] != 1000


IN_CLUSTERS = """
#define BLOCKS 4
#define CLUSTER_OF(blocks)
extern "C" __global__ void CLUSTER_OF(BLOCKS) totals(const float* __restrict__ values, int n, float* out) {
    extern __shared__ unsigned char dynamic_shared[];
    unsigned char* shared = shared_of_block(dynamic_shared);
    unsigned long long* sums = (unsigned long long*)shared;
    unsigned long long sum = 0;
    for (int k = block_of_cluster(); k < n; k += blocks_of_cluster())
        sum += (unsigned long long)values[blockIdx.x / blocks_of_cluster() * n + k];
    if (!threadIdx.x)
        for (unsigned block = 0; block < blocks_of_cluster(); block++)
            store_in_block(sums + block_of_cluster(), block, sum);
    BARRIER
    if (!threadIdx.x)
        out[blockIdx.x] = float(sums[0] + sums[1] + sums[2] + sums[3]);
}
"""


@pytest.mark.skipif(not has_compiler(), reason="g++ is not installed")
@pytest.mark.parametrize("threads", [1, 32, 64])
@pytest.mark.parametrize("order", range(4))
def test_a_cluster_on_the_cpu_waits_at_its_barriers(threads: int, order: int) -> None:
    """Each block of a cluster writes to the shared memory of the others; without the barrier, one reads too early."""
    values, out = (
        np.random.default_rng(0).integers(0, 9, size=(3, 1000)).astype(np.float32),
        np.zeros(12, dtype=np.float32),
    )
    arguments = [values, np.int32(1000), out]
    for barrier, is_right in (("wait_for_cluster();", True), ("", False)):
        out[:] = 0
        sample = KernelsOnCPU(IN_CLUSTERS.replace("BARRIER", barrier))
        sample.launch("totals", [12], [threads], arguments, 64, order)
        assert np.array_equal(out, np.repeat(values.sum(axis=1), 4)) == is_right
    with pytest.raises(RuntimeError, match="multiple"):
        sample.launch("totals", [6], [threads], arguments, 64, order)


@pytest.mark.skipif(not has_compiler(), reason="g++ is not installed")
def test_kernels_refuse_arrays_of_other_types(cupy_double: Any, tmp_path: Path) -> None:
    file, device = tmp_path / "sample.cu", Device("cuda", 0)
    file.write_text(SAMPLE.replace("BARRIER", "__syncthreads();"))
    values, out = cupy_double.ones((2, 8), dtype=np.float32), cupy_double.zeros(2, dtype=np.float32)
    kernels = KernelFile(file)
    kernels.launch(device, "total", 2, 32, values, np.int32(8), out, shared_bytes=128)
    np.testing.assert_array_equal(out.get(), [8, 8])
    for wrong in (values.astype(np.float64), np.float32(1)):
        with pytest.raises(TypeError, match="argument 0"):
            kernels.launch(device, "total", 2, 32, wrong, np.int32(8), out, shared_bytes=128)
    with pytest.raises(ValueError, match="C order"):
        kernels.launch(device, "total", 2, 32, values[:, ::2], np.int32(4), out, shared_bytes=128)
    kernels.launch(device, "total", 2, 32, values, np.int32(8), out, shared_bytes=64 * 1024)


KERNEL_TESTS = {path for path in Path(__file__).parent.rglob("test_*_kernels.py") if path != Path(__file__)}
SLOW = {  # with the sanitizers
    path
    for path in KERNEL_TESTS
    if path.name.startswith(("test_batched_smo", "test_device_search", "test_device_scores"))
}


@pytest.mark.skipif(not has_compiler(), reason="g++ is not installed")
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(KERNEL_TESTS - SLOW, id="quick", marks=pytest.mark.thorough),
        *(pytest.param({path}, id=path.stem, marks=pytest.mark.thorough) for path in sorted(SLOW)),
    ],
)
def test_kernels_keep_to_their_memory(files: set[Path]) -> None:
    """The tests of the kernels pass with the address and the undefined-behaviour sanitizer."""
    library = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("g++ has no address sanitizer")
    environment = os.environ | {
        "HAYBALE_KERNEL_SANITIZERS": "address,undefined",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0,detect_stack_use_after_return=0",
    }
    pytest_command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*pytest_command, *map(str, sorted(files))],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[1],
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
