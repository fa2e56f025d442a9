"""Draw the figures of the documentation: ``python -m docs.figures`` writes docs/figures/*.png."""

import re
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import calipers
from benchmarks.scaling_out import Cluster, Job, most_workers, predicted, simulated
from benchmarks.targets import results

HERE = Path(__file__).parent / "figures"
PARTS = ("value", "error")
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
    "different order of summation": turned,
    "inputs in tf32": calipers.emulate(linear, "tf32", where=("inputs",)),
    "inputs in bfloat16": calipers.emulate(linear, "bfloat16", where=("inputs",)),
    "last tile wrong by 1e-5": wrong,
}


def perturbed(x, delta):
    change = RANDOM.uniform(0.5, 1.5, x.shape) * RANDOM.choice([-1, 1], x.shape)
    return (x * (1 + delta * change)).astype(x.dtype)


def perturbed_inputs():
    """Draw the cosine between differences of two implementations at x and at perturbed x."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    powers = np.arange(-23, -3)
    for name, port in PORTS.items():
        here = (linear(X, W) - port(X, W)).ravel()
        cosines = []
        for power in powers:
            x, w = perturbed(X, 2.0**power), perturbed(W, 2.0**power)
            there = (linear(x, w) - port(x, w)).ravel()
            cosines.append(here @ there / np.linalg.norm(here) / np.linalg.norm(there))
        axes.plot(powers, cosines, "o-", markersize=3, label=name)
    for power, name in ((-24, "float32"), (-11, "tf32"), (-8, "bfloat16")):
        axes.axvline(power, color="0.7", linewidth=0.8)
        axes.text(power, 1.04, name, fontsize=8, ha="center")
    axes.set_xticks(range(-24, -2, 4))
    axes.set_ylim(-0.45, 1.15)
    axes.set_xlabel("k: inputs are perturbed by 2**k of their size")
    axes.set_ylabel("cosine between f - g at x and at perturbed x")
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
        axes.loglog(grid, 1e-5 * grid + 1e-8, color="0.4", label="limit of allclose")
        bound = (4 + 512**0.5) * 2.0**-24 * np.hypot(grid, 1.4)
        axes.loglog(grid, bound, "--", color="0.4", label="limit of diagnose, about")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("|f(x)|")
        axes.legend(fontsize=8, loc="lower right")
    figure.axes[0].set_ylabel("|f(x) - g(x)|")
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


def edges():
    """Draw where verdicts of three libraries are wrong: far out, and between integers."""
    import torch  # no other figure needs it

    def by_torch(a, b, rtol, atol):
        return torch.isclose(*map(torch.from_numpy, (a, b)), rtol=rtol, atol=atol).numpy()

    libraries = {"NumPy": np.isclose, "torch": by_torch, "calipers": calipers.isclose}
    largest = np.finfo(float).max * np.linspace(0.2, 1, 161)
    rtols = np.linspace(0.4, 3.6, 161)
    powers, atols = np.arange(20, 62), np.linspace(0.05, 1.95, 20)
    integers = 2 ** powers.astype(np.int64)
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    grid = figure.subplots(2, 3, sharex="row", sharey="row")
    colors = ListedColormap(["#e8e8e8", "#9ec5e8", "#c1272d"])
    for (name, close), (above, below) in zip(libraries.items(), grid.T, strict=True):
        with np.errstate(over="ignore"):
            told = np.array([close(largest, -largest, rtol, 0.0) for rtol in rtols])
        right = np.broadcast_to((rtols >= 2)[:, None], told.shape)
        shown = np.where(told == right, right.astype(int), 2)
        limits = {"cmap": colors, "vmin": 0, "vmax": 2, "shading": "nearest"}
        above.pcolormesh(largest / 1e308, rtols, shown, **limits)
        told = np.array([close(integers, integers + 1, 0.0, float(atol)) for atol in atols])
        right = np.broadcast_to((atols >= 1)[:, None], told.shape)
        below.pcolormesh(powers, atols, np.where(told == right, right.astype(int), 2), **limits)
        above.set_title(name, fontsize=10)
        above.set_xlabel("a / 1e308")
        below.set_xlabel("k, of n = 2**k")
    grid[0, 0].set_ylabel("a and -a: rtol")
    grid[1, 0].set_ylabel("n and n + 1: atol")
    kinds = zip(colors.colors, ("rightly not close", "rightly close", "wrong"), strict=True)
    patches = [Patch(color=color, label=label) for color, label in kinds]
    figure.legend(handles=patches, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def in_single(x):
    return np.exp(x.astype(np.float32)).astype(float)


def derivative_errors():
    """Draw the error of a difference against its step, and the errors that are estimated."""
    cases = (
        ("exp at 1", np.exp, 1.0, np.e),
        ("exp in float32, at 1", in_single, 1.0, np.e),
        ("sin(1000 x) at 1", lambda x: np.sin(1000 * x), 1.0, 1000 * np.cos(1000.0)),
    )
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    steps = np.geomspace(1e-15, 1, 301)
    for axes, (name, f, x, exact) in zip(figure.subplots(1, 3, sharey=True), cases, strict=True):
        apart = (x + steps) - (x - steps)
        off = abs((f(x + steps) - f(x - steps)) / apart - exact) / abs(exact)
        axes.loglog(steps, np.maximum(off, 1e-17), color="0.6", linewidth=0.8, label="difference")
        # The report of a wrong derivative has the slopes at all steps.
        wrong = {"jac": lambda _, exact=exact: np.array([[2 * exact]])}
        report = calipers.gradcheck(f, np.array([x]), **wrong, raise_exception=False)
        table = report.worst.scales
        for contradicted, fill, label in ((False, "C0", "estimated"), (True, "white", "")):
            rows = [row for row in table.rows if row.contradicted == contradicted]
            places = [row.step for row in rows], [row.error / abs(exact) for row in rows]
            axes.plot(*places, "o", markersize=3, color="C0", markerfacecolor=fill, label=label)
        best = table.rows[table.best]
        said, true = best.error / abs(exact), abs(best.slope / exact - 1)
        circle = {"markersize": 9, "fillstyle": "none", "color": "black"}
        axes.plot([best.step], [said], "o", label=f"of the value: {said:.1e}", **circle)
        axes.plot([best.step], [max(true, 1e-17)], "x", color="C1", label=f"actual: {true:.1e}")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("step")
        axes.legend(fontsize=8, loc="upper center")
        axes.set_ylim(1e-17, 1e9)
    figure.axes[0].set_ylabel("relative error of the derivative")
    return figure


def error_estimates():
    """Draw actual errors against estimated ones, for functions at random points."""
    cases = {
        "exp": (np.exp, np.exp, (-3, 3)),
        "log": (np.log, lambda x: 1 / x, (1e-3, 3)),
        "sin(100 x)": (lambda x: np.sin(100 * x), lambda x: 100 * np.cos(100 * x), (0, 3)),
        "x**1.5": (lambda x: x**1.5, lambda x: 1.5 * x**0.5, (1e-3, 3)),
        "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, (-3, 3)),
        "exp in float32": (in_single, np.exp, (-3, 3)),
    }
    figure = Figure(figsize=(6, 4.4), layout="constrained")
    axes = figure.subplots()
    random = np.random.default_rng(0)
    below = total = 0
    for name, (f, slope, (low, high)) in cases.items():
        x = random.uniform(low, high, 300)
        places = [calipers.differentiate(f, x[k : k + 1]) for k in range(x.size)]
        value, said = (np.array([getattr(d, part)[0, 0] for d in places]) for part in PARTS)
        scale = np.abs(slope(x))
        off = abs(value - slope(x))
        axes.loglog(said / scale, np.maximum(off / scale, 1e-17), ".", markersize=3, label=name)
        # The exact derivative is rounded, too.
        below += np.count_nonzero(off <= said + np.spacing(scale))
        total += x.size
    axes.plot([1e-16, 1e-4], [1e-16, 1e-4], color="0.5", linewidth=0.8)
    axes.set_xlabel("estimated relative error")
    axes.set_ylabel("actual relative error")
    axes.set_title(f"{below} of {total} errors are at most as large as estimated", fontsize=9)
    axes.legend(fontsize=8)
    return figure


def measured():
    """Return the committed results: name, value and unit of each measurement, in order."""
    return results((Path(__file__).parents[1] / "benchmarks/results.md").read_text()).values()


def chosen(pattern, unit):
    """Return the part of each name that the pattern's group matches, and the value."""
    return [
        (match.group(1), row.value)
        for row in measured()
        if row.unit == unit and (match := re.fullmatch(pattern, row.name))
    ]


def speed():
    """Draw the committed results of allclose: by dtype, by position of a mismatch, by threads."""
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    times = dict(chosen(r"allclose, [\d.]+e7 equal,? (.+)", "x NumPy"))
    left.barh(list(times), list(times.values()), color="C0")
    left.invert_yaxis()
    left.axvline(1, color="0.3", linewidth=0.8)
    left.tick_params(axis="y", labelsize=8)
    left.set_xlabel("speed relative to numpy.allclose")
    left.set_title("allclose of 1e7 or more elements", fontsize=9)

    positions = chosen(r"allclose, 5e7 differ at (\d+)%", "of the time of a full pass")
    shares = [float(position) for position, _ in positions]
    middle.plot([0, 100], [0, 1], color="0.7", linewidth=0.8)
    middle.plot(shares, [value for _, value in positions], "o", color="C0")
    middle.set_xlabel("position of the mismatch, % of the elements")
    middle.set_ylabel("time relative to a full pass")
    middle.set_title("A mismatch ends the pass", fontsize=9)

    sizes = sorted(
        (16 * float(size.replace(",", "")), value)
        for size, value in chosen(r"allclose, ([\d,]+) float64, 2 threads", "x 1 thread")
    )
    right.semilogx([size / 2**20 for size, _ in sizes], [value for _, value in sizes], "o-")
    right.axvline(8, color="0.7", linewidth=0.8)
    right.set_ylim(0, 2)
    right.set_xlabel("MiB of both arrays")
    right.set_ylabel("speed relative to 1 thread")
    right.set_title("2 threads", fontsize=9)
    return figure


COMPARED = [  # measurements of results.md that stand for the others of their kind
    "allclose, small: 10 float64",
    "allclose, 5e7 equal float64",
    "isclose, 1e7 float64",
    "array_equal, 1e7 float64",
    "array_equal, small: lists",
    "allfinite, 1e7 strided",
    "compare, 5e7 float64, 1 % differ",
    "assert_close, 10 float64",
    "assert_close, 10,000,000 float64",
    "jacobian, NumPy f, 3 x 3",
    "jacobian_function, 100 x 100, 1 thread",
    "jacobian_function, tridiagonal, n = 1e6",
    "differentiate, 100 x 100",
    "gradcheck of vjp, compiled f, n = 1000",
    "gradcheck of a torch function, n = 10",
    "gradcheck of a torch function, n = 1000",
]


def relative():
    """Draw how fast calipers is relative to its peers; where it is slower in another colour."""
    rows = [row for row in measured() if row.name in COMPARED and row.unit.startswith("x ")]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    labels = [f"{row.name} vs {row.unit.removeprefix('x ')}" for row in rows]
    values = [row.value for row in rows]
    colors = ["C0" if value >= 1 else "C1" for value in values]
    axes.barh(labels, [value - 1 for value in values], left=1, color=colors)
    axes.set_xscale("log")
    axes.axvline(1, color="0.3", linewidth=0.8)
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("speed relative to the peer (orange: the peer is faster)")
    return figure


def report():
    """Draw the report of two arrays that differ in a tile, as on the first page."""
    expected = np.random.default_rng(0).normal(size=(64, 48)).astype("float32")
    actual = expected.copy()
    actual[16:32, 32:48] *= 1.001
    return calipers.compare(actual, expected).plot()


def cancels(x):
    return (np.sqrt(1 + x) - 1) / x


def cancels_vjp(x, w):
    root = np.sqrt(1 + x)
    return -w / (2 * root * (1 + root) ** 2)


def scales():
    """Draw the slopes of a function whose digits cancel, at all steps."""
    x = np.array([1e-5])
    return calipers.gradcheck(cancels, x, vjp=cancels_vjp, raise_exception=False).plot()


def main():
    for draw in (
        report,
        scales,
        perturbed_inputs,
        sizes,
        scaling,
        edges,
        derivative_errors,
        error_estimates,
        speed,
        relative,
    ):
        draw().savefig(HERE / f"{draw.__name__}.png", dpi=110)
    tf32 = calipers.diagnose(linear, PORTS["inputs in tf32"], (X, W))
    tf32.plot().savefig(HERE / "tf32.png", dpi=90)
    print(calipers.diagnose(linear, wrong, (X, W)))


if __name__ == "__main__":
    main()
