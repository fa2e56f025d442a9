"""Files and chunked stores beyond memory: time, bandwidth, and how much memory it takes.

``python -m benchmarks.beyond_memory [GiB a file] [GiB a store]`` prints a table. Each line is a
process of its own, that its peak of memory be its own. The files are holes, which take no disk and
are read through the page cache as others are; the stores hold random numbers, compressed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import calipers

LIMIT = 256 << 20
_BLOCK = 2 << 20
_CHUNK = (1000, 1000)
_REPEATS = 3


# What is asked, of a folder that `make` has filled.


def maps(folder: Path) -> list[np.ndarray]:
    return [np.memmap(folder / name, np.float64, "r") for name in "ab"]


def stores(folder: Path) -> list[Any]:
    import h5py
    import zarr

    return [zarr.open_array(folder / "z", mode="r"), h5py.File(folder / "h", "r")["x"]]


def read_files(folder: Path) -> None:
    """Read both files into one buffer: what any comparison does at least."""
    buffer = memoryview(bytearray(_BLOCK))
    for name in "ab":
        with open(folder / name, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def numpy_blocks(a: Any, b: Any, blocks: Iterator[Any]) -> None:
    assert all(np.allclose(a[block], b[block]) for block in blocks)


def rows(a: Any, step: int) -> Iterator[slice]:
    for start in range(0, a.shape[0], step):
        yield slice(start, start + step)


def numpy_files(folder: Path) -> None:
    a, b = maps(folder)
    numpy_blocks(a, b, rows(a, 1 << 20))


def numpy_stores(folder: Path) -> None:
    a, b = stores(folder)
    numpy_blocks(a, b, rows(a, _CHUNK[0]))


def read_stores(folder: Path) -> None:
    for x in stores(folder):
        for block in rows(x, _CHUNK[0]):
            x[block]


QUESTIONS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "read alone, one thread": ("files", read_files),
    "calipers.allclose": ("files", lambda folder: calipers.allclose(*maps(folder))),
    "calipers.compare": ("files", lambda folder: calipers.compare(*maps(folder))),
    "calipers.allclose in place, no limit": (
        "files",
        lambda folder: calipers.allclose(*maps(folder), memory_limit=1 << 62),
    ),
    "numpy.allclose by blocks of 8 MiB": ("files", numpy_files),
    "read alone, rows of chunks": ("stores", read_stores),
    "calipers.allclose, zarr with h5py": (
        "stores",
        lambda folder: calipers.allclose(*stores(folder)),
    ),
    "calipers.compare, zarr with h5py": (
        "stores",
        lambda folder: calipers.compare(*stores(folder)),
    ),
    "numpy.allclose by rows of chunks": ("stores", numpy_stores),
}


def make(folder: Path, file_bytes: int, store_bytes: int) -> int:
    """Fill a folder; return the bytes of an array in a store."""
    for name in "ab":
        with open(folder / name, "wb") as file:
            file.truncate(file_bytes)
    columns = 4 * _CHUNK[1]
    bands = max(1, store_bytes // (8 * columns * _CHUNK[0]))
    shape = (bands * _CHUNK[0], columns)
    try:
        import h5py
        import zarr
    except ImportError:
        return 0
    random = np.random.default_rng(0)
    z = zarr.create_array(store=folder / "z", shape=shape, chunks=_CHUNK, dtype="f8")
    with h5py.File(folder / "h", "w") as file:
        h = file.create_dataset("x", shape, "f8", chunks=_CHUNK, compression="lzf")
        for band in rows(h, _CHUNK[0]):
            z[band] = h[band] = random.standard_normal((_CHUNK[0], columns))
    return 8 * shape[0] * shape[1]


def measured(name: str, folder: Path) -> tuple[float, int]:
    """Return the seconds and the growth of memory of a question, asked in a new process."""
    command = [sys.executable, "-m", "benchmarks.beyond_memory", "--ask", name, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, growth = done.stdout.split()
    return float(seconds), int(growth)


def ask(name: str, folder: Path) -> None:
    """Print the seconds that a question takes, and how much memory beyond what a small one does."""
    small = np.zeros(10)
    calipers.compare(small, small)  # kernels are loaded
    calipers.allclose(small, small)
    kind, question = QUESTIONS[name]
    if kind == "stores":
        for x in stores(folder):
            x[:10, :10]
    before = reset_peak()
    started = time.perf_counter()
    question(folder)
    seconds = time.perf_counter() - started
    print(seconds, memory("VmHWM") - before)


def reset_peak() -> int:
    """Reset the peak of the process's memory, "VmHWM", to the memory in use, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    """Return a figure of the process's memory, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def main(file_gib: float = 16.0, store_gib: float = 1.0) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file_bytes = int(file_gib * 2**30)
        sizes = {"files": file_bytes, "stores": make(folder, file_bytes, int(store_gib * 2**30))}
        print(f"memory_limit: {LIMIT >> 20} MiB; {os.cpu_count()} cores; medians of {_REPEATS}\n")
        print("| question | of 2 x | s | GiB/s | more memory |\n|---|---|---|---|---|")
        for name, (kind, _) in QUESTIONS.items():
            if not sizes[kind]:
                print(f"| {name} | zarr and h5py are not installed | | | |")
                continue
            found = [measured(name, folder) for _ in range(_REPEATS)]
            seconds = median(s for s, _ in found)
            total, growth = 2 * sizes[kind], max(g for _, g in found)
            print(
                f"| {name} | {sizes[kind] / 2**30:.3g} GiB | {seconds:.2f} | "
                f"{total / 2**30 / seconds:.2f} | {growth / 2**20:.0f} MiB |"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*map(float, sys.argv[1:]))
