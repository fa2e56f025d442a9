"""Draw the figures of the documentation: ``python -m docs.figures`` writes docs/figures/*.png."""

from pathlib import Path

import numpy as np
from benchmarks.scaling_out import Cluster, Job, most_workers, predicted, simulated
from matplotlib.figure import Figure

import calipers

HERE = Path(__file__).parent / "figures"
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((64, 512), dtype=np.float32)
W = (RANDOM.standard_normal((256, 512)) / 22).astype(np.float32)


def linear(x, w):
    return x @ w.T


def turned(x, w):
    return x[:, ::-1] @ w[:, ::-1].T


def wrong(x, w):
    y = linear(x, w)
    y[:, 240:] *= y.dtype.type(1 + 1e-5)
    return y


PORTS = {
    "another order of summation": turned,
    "inputs in tf32": calipers.emulate(linear, "tf32", where=("inputs",)),
    "inputs in bfloat16": calipers.emulate(linear, "bfloat16", where=("inputs",)),
    "last tile wrong by 1e-5": wrong,
}


def moved(x, delta):
    change = RANDOM.uniform(0.5, 1.5, x.shape) * RANDOM.choice([-1, 1], x.shape)
    return (x * (1 + delta * change)).astype(x.dtype)


def likeness():
    """Draw how alike the difference of two sides stays when their inputs are moved."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    powers = np.arange(-23, -3)
    for name, port in PORTS.items():
        here = (linear(X, W) - port(X, W)).ravel()
        cosines = []
        for power in powers:
            x, w = moved(X, 2.0**power), moved(W, 2.0**power)
            there = (linear(x, w) - port(x, w)).ravel()
            cosines.append(here @ there / np.linalg.norm(here) / np.linalg.norm(there))
        axes.plot(powers, cosines, "o-", markersize=3, label=name)
    for power, name in ((-24, "float32"), (-11, "tf32"), (-8, "bfloat16")):
        axes.axvline(power, color="0.7", linewidth=0.8)
        axes.text(power, 1.04, name, fontsize=8, ha="center")
    axes.set_ylim(-0.45, 1.15)
    axes.set_xlabel("inputs moved by 2**k of themselves, k")
    axes.set_ylabel("cosine between f - g here and there")
    axes.legend(fontsize=8, loc=(0.66, 0.5))
    return figure


def sizes():
    """Draw differences of two implementations by the size of the results."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2, sharey=True), list(PORTS)[::3], strict=True):
        y, z = linear(X, W).ravel(), PORTS[name](X, W).ravel()
        apart = np.abs(y - z)
        axes.loglog(np.abs(y)[apart > 0], apart[apart > 0], ".", markersize=2, color="#c1272d")
        grid = np.geomspace(1e-4, 5)
        axes.loglog(grid, 1e-5 * grid + 1e-8, color="0.4", label="allclose allows")
        bound = (4 + 512**0.5) * 2.0**-24 * np.hypot(grid, 1.4)
        axes.loglog(grid, bound, "--", color="0.4", label="diagnose allows, about")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("|result|")
        axes.legend(fontsize=8, loc="lower right")
    return figure


def scaling():
    """Draw how much faster more workers are, computed and simulated."""
    rate, bandwidth = 550.0, 1.25e9
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    workers = np.unique(np.geomspace(1, 3000, 60).astype(int))
    for k, (text, seconds, back) in enumerate(
        (("10 ms", 0.01, 8e4), ("0.1 s", 0.1, 8e4), ("1 s", 1.0, 8e4), ("1 s, 8 MB back", 1.0, 8e6))
    ):
        job = Job(20_000, seconds, 8e4, back)
        clusters = [Cluster(int(n), rate, bandwidth) for n in workers]
        alone = job.tasks * seconds
        color = f"C{k}"
        axes.loglog(workers, [alone / predicted(job, c) for c in clusters], color=color)
        some = clusters[::6]
        times = [alone / simulated(job, c) for c in some]
        label = f"tasks of {text}: up to {most_workers(job, rate, bandwidth):.0f} workers"
        axes.loglog([c.workers for c in some], times, "o", markersize=4, color=color, label=label)
    axes.loglog(workers, workers, color="0.8", zorder=0)
    axes.set_xlabel("workers")
    axes.set_ylabel("times as fast as one")
    axes.legend(fontsize=8, title="lines computed, dots simulated", title_fontsize=8)
    return figure


for name, draw in (("likeness", likeness), ("sizes", sizes), ("scaling", scaling)):
    draw().savefig(HERE / f"{name}.png", dpi=110)
calipers.diagnose(linear, PORTS["inputs in tf32"], (X, W)).plot().savefig(HERE / "tf32.png", dpi=90)
print(calipers.diagnose(linear, wrong, (X, W)))
