"""Pairs of statistics, prices, and tokens of texts.

Labelled when the rules stood, and before any was asked. About half of the pairs are one function in
two forms, as libraries and ports have it; in the others one side has a mistake that people make, of
all of a result down to a millionth of it.
"""

import math

import numpy as np

from .case import HIDDEN, SAME, SCIPY, TORCH, WHOLE, Cases, double, normal, softmax, uniform

CASES = case = Cases()


# Statistics.


@case(f"{SAME} EQUAL", "of a library, and from the sorted numbers")
def quantiles(rng):
    levels = (0.05, 0.3, 0.5, 0.77)

    def g(x):
        x = np.sort(x, axis=1)
        found = []
        for level in levels:
            at = level * (x.shape[1] - 1)
            k = math.floor(at)
            found.append((1 - (at - k)) * x[:, k] + (at - k) * x[:, k + 1])
        return np.stack(found, axis=1)

    def f(x):
        return np.quantile(x, np.array(levels), axis=1).T

    return f, g, [double(rng, 20, 101)]


@case("BUG", "1.483 for 1.4826: off by 2.7e-4")
def deviation_by_another_factor(rng):
    def spread(factor):
        def f(x):
            off = np.abs(x - np.median(x, axis=1, keepdims=True))
            return x.dtype.type(factor) * np.median(off, axis=1)

        return f

    return spread(1.4826), spread(1.483), [normal(rng, 20, 101)]


@case("EQUAL", "counts of a library, and of numbers by the width of a bin", options=WHOLE)
def histogram_by_width(rng):
    def g(x):
        k = np.floor(x * 20).astype(int)
        return np.bincount(k, minlength=20)

    return lambda x: np.histogram(x, 20, (0, 1))[0], g, [rng.random(500)]


@case(HIDDEN, "what is on the last edge is not counted", options=WHOLE)
def histogram_without_its_end(rng):
    def g(x):
        k = np.floor(x * 20).astype(int)
        return np.bincount(k[k < 20], minlength=20)

    x = rng.random(500).astype(np.float32)
    x[:4] = 1
    return lambda x: np.histogram(x, 20, (0, 1))[0], g, [x]


@case("EQUAL ROUNDING", "floats of a library, and integers by sorting twice", options=WHOLE)
def ranks(rng):
    def f(x):
        order = np.argsort(x)
        y = np.empty(len(x))
        y[order] = np.arange(1, len(x) + 1)
        return y

    return f, lambda x: np.argsort(np.argsort(x)) + 1, [normal(rng, 200)]


@case(HIDDEN, "equal numbers have their mean rank, or the least", options=WHOLE, needs=SCIPY)
def ranks_of_equal_numbers(rng):
    from scipy.stats import rankdata

    x = (rng.integers(0, 60, 80) / 4).astype(np.float32)
    return rankdata, lambda x: rankdata(x, method="min"), [x]


@case(HIDDEN, "in falling order, equal numbers the other way round", options=WHOLE)
def order_of_equal_numbers(rng):
    def f(x):
        return np.argsort(-x, kind="stable")

    def g(x):
        return np.argsort(x, kind="stable")[::-1]

    return f, g, [(rng.integers(0, 40, 60) / 8).astype(np.float32)]


def nearest(x, centres):
    d = x[:, None] - centres
    return np.argmin((d * d).sum(axis=2), axis=1)


def by_squares(x, centres):
    return np.argmin((centres**2).sum(axis=1) - 2 * (x @ centres.T), axis=1)


@case("EQUAL AMPLIFIED", "labels of the nearest centres by two distances")
def nearest_centres(rng):
    return nearest, by_squares, [normal(rng, 200, 5), normal(rng, 6, 5)]


@case("BUG", "half of the product of the two")
def nearest_centres_by_another_distance(rng):
    def g(x, centres):
        return np.argmin((centres**2).sum(axis=1) - x @ centres.T, axis=1)

    return nearest, g, [normal(rng, 200, 5), normal(rng, 6, 5)]


def is_outlying(ddof):
    def f(x):
        off = np.abs(x - x.mean(axis=1, keepdims=True))
        return off > 2 * x.std(axis=1, keepdims=True, ddof=ddof)

    return f


@case(HIDDEN, "outliers by the spread of n, and of n - 1")
def outliers_of_a_sample(rng):
    while True:  # one number is between the two at least
        x = double(rng, 60, 40)
        if (is_outlying(0)(x) != is_outlying(1)(x)).any():
            return is_outlying(0), is_outlying(1), [x]


@case(SAME, "of a library, and two by two", needs=SCIPY)
def log_sum_of_exponentials(rng):
    from scipy.special import logsumexp

    def g(x):
        return np.logaddexp.reduce(x, axis=1)

    return lambda x: logsumexp(x, axis=1), g, [10 * double(rng, 20, 30)]


def log_likelihood(constant):
    def f(x, mean, spread):
        z = (x - mean) / spread
        return (-z * z / 2 - spread.log() - constant).sum(1)

    return f


def samples(rng):
    import torch

    arrays = [normal(rng, 20, 50), normal(rng, 20, 1), uniform(rng, 0.5, 2, 20, 1)]
    return list(map(torch.from_numpy, arrays))


@case(SAME, "of a library, and by its formula", needs=TORCH)
def normal_log_likelihood(rng):
    import torch

    def f(x, mean, spread):
        return torch.distributions.Normal(mean, spread).log_prob(x).sum(1)

    return f, log_likelihood(math.log(2 * math.pi) / 2), samples(rng)


@case("BUG", "0.9189 for half the logarithm of 2 pi", needs=TORCH)
def normal_log_likelihood_of_four_digits(rng):
    constant = math.log(2 * math.pi) / 2
    return log_likelihood(constant), log_likelihood(0.9189), samples(rng)


def covariance(x):
    d = x - x.mean(axis=0)
    return d.T @ d / x.dtype.type(len(x) - 1)


@case(SAME, "of a library, whose results are doubles, and in float32", options=WHOLE)
def covariances(rng):
    return lambda x: np.cov(x.T), covariance, [normal(rng, 60, 8)]


@case("BUG", "of the rows, and not of the columns", options=WHOLE)
def covariances_of_rows(rng):
    return np.cov, lambda x: np.cov(x.T), [double(rng, 24, 24)]


def spread_along(rng, kind):
    """Return points whose spreads along five directions are apart by far."""
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    return ((rng.standard_normal((80, 5)) * 2.0 ** np.arange(5)) @ turn + 1).astype(kind)


def signed(vectors):
    """Turn rows so that their largest numbers are positive."""
    at = np.argmax(np.abs(vectors), axis=1)
    return vectors * np.sign(vectors[np.arange(len(vectors)), at])[:, None]


def components_by_svd(x, sign=signed):
    return sign(np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2])


@case(
    f"{SAME} AMPLIFIED UNSTABLE",
    "by singular vectors, and by eigenvectors of squares, with one convention",
    options=WHOLE,
)
def principal_components(rng):
    def g(x):
        return signed(np.linalg.eigh(covariance(x))[1].T[::-1])

    return components_by_svd, g, [spread_along(rng, np.float32)]


@case("BUG", "the mean is left in", options=WHOLE)
def principal_components_of_no_mean(rng):
    def g(x):
        return signed(np.linalg.svd(x, full_matrices=False)[2])

    return components_by_svd, g, [spread_along(rng, np.float64)]


@case("BUG", "another sign: the sum is positive, or the largest number", options=WHOLE)
def principal_components_of_another_sign(rng):
    def by_sum(vectors):
        return vectors * np.sign(vectors.sum(axis=1))[:, None]

    while True:
        x = spread_along(rng, np.float32)
        if (components_by_svd(x) * components_by_svd(x, by_sum) < 0).any():
            return components_by_svd, lambda x: components_by_svd(x, by_sum), [x]


def moments(x, excess=0):
    d = x - x.mean(axis=1, keepdims=True)
    m2 = (d * d).mean(axis=1)
    skewness = (d**3).mean(axis=1) / m2 ** x.dtype.type(1.5)
    return {"variance": m2, "skew": skewness, "tails": (d**4).mean(axis=1) / m2**2 - excess}


@case(f"{SAME} AMPLIFIED", "three results, of a library and by formulas", needs=SCIPY)
def three_moments(rng):
    from scipy import stats

    def f(x):
        tails = stats.kurtosis(x, axis=1, fisher=False)
        return {"variance": x.var(axis=1), "skew": stats.skew(x, axis=1), "tails": tails}

    return f, moments, [double(rng, 20, 60)]


@case("BUG", "3 is taken off one of three results")
def three_moments_of_which_one_is_less(rng):
    return moments, lambda x: moments(x, 3), [normal(rng, 20, 60)]


@case("BUG", "a price by draws of no seed, where there is a formula", needs=SCIPY)
def price_by_chance(rng):
    draw = np.random.default_rng(rng.integers(2**32))

    def g(s, k, t, v):
        z = draw.standard_normal((1000, 1))
        ends = s * np.exp(-v * v * t / 2 + v * np.sqrt(t) * z)
        return np.maximum(ends - k, 0).mean(axis=0)

    return call_price, g, options_to_buy(rng)


# Filters of states, and prices.


def kalman(p, steps=30, noise=1e-3, joseph=False):
    """Return covariances of places and speeds that are measured in turn."""
    kind = p.dtype.type
    f = np.array([[1, 0.1], [0, 1]], p.dtype)
    h = np.array([[1, 0]], p.dtype)
    for _ in range(steps):
        p = f @ p @ f.T + kind(noise) * np.eye(2, dtype=p.dtype)
        k = p @ h.T / (h @ p @ h.T + kind(0.5))
        left = np.eye(2, dtype=p.dtype) - k @ h
        p = left @ p
        if joseph:
            p = p @ left.mT + kind(0.5) * (k @ k.mT)
    return p


def covariances_of_states(rng, kind):
    a = rng.standard_normal((20, 2, 2))
    return [(a @ a.mT + np.eye(2)).astype(kind)]


@case(SAME, "the short form, and Joseph's", options={"reduction": 30})
def kalman_by_joseph(rng):
    return kalman, lambda p: kalman(p, joseph=True), covariances_of_states(rng, np.float32)


@case(HIDDEN, "a noise of 1.00001e-3 for one of 1e-3", options={"reduction": 30})
def kalman_of_another_noise(rng):
    return kalman, lambda p: kalman(p, noise=1.00001e-3), covariances_of_states(rng, np.float64)


def options_to_buy(rng, kind=np.float64):
    s, k, t, v = (rng.uniform(a, b, 50) for a, b in ((80, 120), (80, 120), (0.2, 2), (0.1, 0.5)))
    return [x.astype(kind) for x in (s, k, t, v)]


def call_price(s, k, t, v):
    from scipy.special import ndtr

    spread = v * np.sqrt(t)
    d = np.log(s / k) / spread + spread / 2
    return s * ndtr(d) - k * ndtr(d - spread)


@case(f"{SAME} AMPLIFIED UNSTABLE", "by two functions of the normal distribution", needs=SCIPY)
def option_prices(rng):
    from scipy.special import erfc

    def g(s, k, t, v):
        spread = v * np.sqrt(t)
        d = (np.log(s) - np.log(k) + v * v * t / 2) / spread
        root = math.sqrt(2)
        return (s * erfc(-d / root) - k * erfc((spread - d) / root)) / 2

    return call_price, g, options_to_buy(rng, np.float32)


@case("BUG", "the spread of a time, and not of its root", needs=SCIPY)
def option_prices_of_another_spread(rng):
    from scipy.special import ndtr

    def g(s, k, t, v):
        spread = v * np.sqrt(t)
        d = np.log(s / k) / spread + spread / 2
        return s * ndtr(d) - k * ndtr(d - v * t)

    return call_price, g, options_to_buy(rng)


@case("BUG", "a year of 365.25 days, and one of 365", needs=SCIPY)
def option_prices_by_another_year(rng):
    def g(s, k, t, v):
        return call_price(s, k, t * t.dtype.type(365.25 / 365), v)

    return call_price, g, options_to_buy(rng, np.float32)


def present_value(flows, rate):
    t = np.arange(1, flows.shape[1] + 1, dtype=flows.dtype)
    return (flows / (1 + rate[:, None]) ** t).sum(axis=1)


@case(SAME, "by powers, and from the last year on")
def present_values(rng):
    def g(flows, rate):
        y = 0 * rate
        for flow in flows.T[::-1]:
            y = (y + flow) / (1 + rate)
        return y

    return present_value, g, [rng.uniform(50, 100, (30, 40)), rng.uniform(0.01, 0.1, 30)]


@case("BUG", "years that count from 0")
def present_values_of_the_year_before(rng):
    def g(flows, rate):
        t = np.arange(flows.shape[1], dtype=flows.dtype)
        return (flows / (1 + rate[:, None]) ** t).sum(axis=1)

    return present_value, g, [uniform(rng, 50, 100, 30, 40), uniform(rng, 0.01, 0.1, 30)]


def drawdown(prices):
    return (1 - prices / np.maximum.accumulate(prices, axis=1)).max(axis=1)


@case("BUG", "the highest price of the days before, without the day itself")
def drawdown_without_today(rng):
    def g(prices):
        top = np.maximum.accumulate(prices, axis=1)
        return (1 - prices[:, 1:] / top[:, :-1]).max(axis=1)

    steps = rng.uniform(-0.02, 0.021, (30, 60))
    steps[:, 40:] = np.abs(steps[:, 40:])
    steps[::2] = np.abs(steps[::2])
    return drawdown, g, [np.exp(steps.cumsum(axis=1)).astype(np.float32)]


# Tokens, and attention with a mask.


def texts(rng, kind=np.float32):
    """Return tokens of 12 texts, 0 beyond their ends, and a table of what they stand for."""
    tokens = rng.integers(1, 50, (12, 20))
    lengths = rng.integers(4, 20, 12)
    tokens[np.arange(20) >= lengths[:, None]] = 0
    return [tokens, rng.standard_normal((50, 16)).astype(kind)]


def mean_of_tokens(tokens, table):
    known = tokens > 0
    total = (table[tokens] * known[:, :, None]).sum(axis=1)
    return total / known.sum(axis=1, keepdims=True).astype(table.dtype)


@case(SAME, "means of what tokens stand for, and by counts of each")
def mean_of_tokens_by_counts(rng):
    def g(tokens, table):
        counts = np.stack([np.bincount(row, minlength=len(table)) for row in tokens])
        counts[:, 0] = 0
        shares = counts.astype(table.dtype) / counts.sum(axis=1, keepdims=True).astype(table.dtype)
        return shares @ table

    return mean_of_tokens, g, texts(rng)


@case("BUG", "what is beyond the end counts in the length")
def mean_of_tokens_and_of_none(rng):
    def g(tokens, table):
        known = (tokens > 0)[:, :, None]
        return (table[tokens] * known).mean(axis=1, dtype=table.dtype)

    return mean_of_tokens, g, texts(rng, np.float64)


def attention(hidden):
    def f(q, k, v, tokens):
        scores = q @ k.mT / math.sqrt(q.shape[2])
        return softmax(np.where((tokens > 0)[:, None], scores, hidden)) @ v

    return f


def heads_and_tokens(rng, kind=np.float32):
    q, k, v = (rng.standard_normal((12, 20, 8)).astype(kind) for _ in "qkv")
    return [q, k, v, texts(rng)[0]]


MASKED = {"batch": (0, 1, 2, 3)}


@case(f"{SAME} EQUAL", "masked by minus infinity, and by -1e4", options=MASKED)
def attention_masked_by_a_number(rng):
    return attention(-math.inf), attention(-1e4), heads_and_tokens(rng)


@case(SAME, "masked by minus infinity, and shares that are cut and made whole", options=MASKED)
def attention_of_shares_made_whole(rng):
    def g(q, k, v, tokens):
        scores = q @ k.mT / math.sqrt(q.shape[2])
        shares = softmax(scores) * (tokens > 0)[:, None]
        return shares @ v / shares.sum(axis=2, keepdims=True)

    return attention(-math.inf), g, heads_and_tokens(rng)


@case("BUG", "masked by -10, which leaks", options=MASKED)
def attention_that_leaks(rng):
    return attention(-math.inf), attention(-10.0), heads_and_tokens(rng)


@case("BUG", "shares that are cut and not made whole", options=MASKED)
def attention_of_shares_cut(rng):
    def g(q, k, v, tokens):
        scores = q @ k.mT / math.sqrt(q.shape[2])
        return (softmax(scores) * (tokens > 0)[:, None]) @ v

    return attention(-math.inf), g, heads_and_tokens(rng, np.float64)


def token_loss(shift):
    import torch

    def f(tokens, table, head):
        scores = table[tokens[:, :-1]] @ head
        goal = (tokens[:, 1:] + shift) % head.shape[1]
        return -torch.log_softmax(scores, 2).gather(2, goal[..., None])[..., 0].mean(1)

    return f


def texts_and_head(rng):
    import torch

    tokens, table = texts(rng)
    return [*map(torch.from_numpy, (tokens, table, normal(rng, 16, 50)))]


# Processors whose libraries sum in the order of NumPy's give equal bits.
@case(f"EQUAL {SAME}", "losses of next tokens, of a library and by what is gathered", needs=TORCH)
def loss_of_tokens(rng):
    import torch

    def g(tokens, table, head):
        scores = (torch.nn.functional.embedding(tokens[:, :-1], table) @ head).mT
        return torch.nn.functional.cross_entropy(scores, tokens[:, 1:], reduction="none").mean(1)

    return token_loss(0), g, texts_and_head(rng)


@case("BUG", "of the tokens after the next in the vocabulary", needs=TORCH)
def loss_of_other_tokens(rng):
    return token_loss(0), token_loss(1), texts_and_head(rng)
