"""Colorings against an obvious greedy one, SciPy's and brute force; recovery against matrices."""

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers._derivatives import coloring as module
from calipers._derivatives.coloring import (
    StarColoring,
    color_columns,
    color_groups,
    decompress,
    first_clash,
    product,
    star_coloring,
)
from calipers._derivatives.sparsity import Pattern
from calipers._kernels.coloring import FIRST_FIT


def compressed(columns, dtype=np.int32):
    """Return a CSC pattern of the rows of each column."""
    indptr = np.cumsum([0, *map(len, columns)])
    return indptr.astype(dtype), np.array([i for c in columns for i in c], dtype)


def of_dense(matrix, dtype=np.int32):
    return compressed([np.flatnonzero(column) for column in np.asarray(matrix).T], dtype)


def greedy(columns, order=None):
    """Return the lowest color free in a column's rows, column by column."""
    used = {}
    colors = [0] * len(columns)
    for j in range(len(columns)) if order is None else order:
        taken = set().union(*(used.get(i, set()) for i in columns[j]))
        colors[j] = next(c for c in range(len(columns)) if c not in taken)
        for i in columns[j]:
            used.setdefault(i, set()).add(colors[j])
    return colors


def is_proper(columns, colors):
    seen = {}
    return all(
        seen.setdefault((i, int(colors[j])), j) == j for j, c in enumerate(columns) for i in c
    )


def random_columns(seed, m, n, most):
    """Return columns of up to `most` rows, unsorted, some twice."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, m, rng.integers(0, most + 1)).tolist() for _ in range(n)]


def many(columns, m, dtype, order=module._NATURAL):
    """Color by the kernel for any number of colors."""
    return module._Greedy(*compressed(columns, dtype), (m, len(columns)))._with_many(order)


def grid(*lengths):
    """Return the columns of a stencil of neighbors along each axis of a grid in C order."""
    numbers = np.arange(np.prod(lengths)).reshape(lengths)
    columns = [[j] for j in numbers.flat]
    for axis in range(len(lengths)):
        line = np.moveaxis(numbers, axis, 0)
        for i, j in zip(line[:-1].flat, line[1:].flat, strict=True):
            columns[i].append(int(j))
            columns[j].append(int(i))
    return columns


def band(n, low, high, periodic=False):
    offsets = range(low, high + 1)
    if periodic:
        return [[(j + d) % n for d in offsets] for j in range(n)]
    return [[j + d for d in offsets if 0 <= j + d < n] for j in range(n)]


patterns = st.tuples(
    st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 40), st.integers(0, 5)
)


@settings(deadline=None)
@given(patterns, st.sampled_from([np.int32, np.int64]))
def test_random_patterns_get_no_more_colors_than_by_greed(pattern, dtype):
    m, n = pattern[1:3]
    columns = random_columns(*pattern)
    expected = greedy(columns)
    colors, masks = np.empty(n, np.uint8), np.zeros(m, np.uint64)
    given = compressed(columns, dtype)
    count = FIRST_FIT[np.dtype(dtype)](*given, module._NATURAL, masks, colors)
    assert colors.tolist() == expected
    assert count == max(expected, default=-1) + 1
    for cost in (0.0, np.inf):
        found = color_columns(*given, (m, n), cost)
        assert is_proper(columns, found.colors)
        assert max(found.colors, default=-1) < found.count <= count
        assert first_clash(*given, (m, n), found) is None


@settings(deadline=None)
@given(patterns, st.sampled_from([np.int32, np.int64]), st.booleans())
def test_the_kernel_for_many_colors_is_greedy_too(pattern, dtype, shuffle):
    m, n = pattern[1:3]
    columns = [*random_columns(*pattern), [0]]
    order = np.random.default_rng(0).permutation(n + 1) if shuffle else module._NATURAL
    found = many(columns, m, dtype, order)
    assert found.colors.tolist() == greedy(columns, order if shuffle else None)


@pytest.mark.parametrize(("n", "most"), [(150, 30), (400, 60), (700, 40)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_more_colors_than_a_word_has_bits(n, most, dtype):
    columns = random_columns(n, 60, n, most)
    expected = greedy(columns)
    assert max(expected) > 64
    indptr, indices = compressed(columns, dtype)
    assert FIRST_FIT[np.dtype(dtype)](
        indptr, indices, module._NATURAL, np.zeros(60, np.uint64), np.empty(n, np.uint8)
    ) == (-1)
    found = color_columns(indptr, indices, (60, n))
    assert found.colors.tolist() == expected
    assert found.count == max(expected) + 1
    assert found.colors.dtype == (np.uint8 if found.count <= 256 else np.intp)
    assert first_clash(indptr, indices, (60, n), found) is None


def test_rows_are_kept_as_lists_and_as_masks():
    # a dense row makes masks long, and then the rows of a few columns are lists
    n = 300
    columns = [[0, *rows] for rows in random_columns(1, 90, n, 5)]
    found = color_columns(*compressed(columns), (90, n))
    assert found.colors.tolist() == greedy(columns) == list(range(n))
    columns = [[*rows, 0] if j % 2 else rows for j, rows in enumerate(random_columns(2, 90, n, 9))]
    found = color_columns(*compressed(columns), (90, n))
    assert found.colors.tolist() == greedy(columns)
    assert found.count > 128


def test_a_large_arrow_takes_a_moment():
    n = 200_000
    indices = np.stack([np.arange(n), np.zeros(n, int)]).T.reshape(-1)
    indptr = np.arange(0, 2 * n + 1, 2)
    found = color_columns(indptr, indices, (n, n))
    assert found.count == n
    assert np.array_equal(found.colors, np.arange(n))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("columns", "m", "count"),
    [
        (band(50, -1, 1), 50, 3),
        (band(50, -3, 1), 50, 5),
        (band(50, 0, 0), 50, 1),
        (band(200, -35, 36), 200, 72),
        (band(60, -1, 1, periodic=True), 60, 3),
        (band(60, -2, 2, periodic=True), 60, 5),
        (grid(7, 9), 63, 5),
        (grid(10, 10), 100, 5),
        (grid(5, 6, 7), 210, 7),
        (grid(8, 8, 8), 512, 7),
        (grid(10, 10, 10), 1000, 7),
        (grid(3, 4, 4, 5), 240, 9),
        ([[j, j + 1] for j in range(20)], 21, 2),
        ([[0]], 1, 1),
        ([[2, 0, 2]], 4, 1),
        ([[], [], []], 2, 1),
        ([[], [], []], 0, 1),
        ([], 3, 0),
        ([], 0, 0),
    ],
)
def test_known_patterns(columns, m, count, dtype):
    given = compressed(columns, dtype)
    found = color_columns(*given, (m, len(columns)))
    assert found.count == count
    assert found.colors.dtype == np.uint8
    assert found.colors.shape == (len(columns),)
    assert is_proper(columns, found.colors)
    assert first_clash(*given, (m, len(columns)), found) is None


def spoilt(columns, row, column):
    return [[*c, row] if j == column else c for j, c in enumerate(columns)]


@pytest.mark.parametrize(
    "columns",
    [
        band(61, -1, 1, periodic=True),
        spoilt(band(60, -1, 1), 3, 52),
        spoilt(grid(10, 10), 0, 99),
        # diagonals that pass from one row of the grid to the next
        [[j + d for d in (-9, -1, 0, 1, 9) if 0 <= j + d < 81] for j in range(81)],
        [[j + d for d in (-3, 0, 3) if 0 <= j + d < 60] for j in range(60)],
    ],
)
def test_what_looks_like_a_stencil_and_is_not_quite(columns):
    n = len(columns)
    found = color_columns(*compressed(columns), (n, n))
    assert is_proper(columns, found.colors)
    assert found.count <= max(greedy(columns)) + 1


def test_columns_with_most_neighbors_come_first_if_that_pays():
    random = np.random.default_rng(7)
    columns = [sorted(set(random.integers(0, 30, 4).tolist())) for _ in range(40)]
    given, shape = compressed(columns), (30, 40)
    natural = max(greedy(columns)) + 1
    lengths = np.bincount(np.concatenate(columns), minlength=30)
    neighbors = [-sum(lengths[rows] - 1) for rows in columns]
    best = max(greedy(columns, np.argsort(neighbors, kind="stable"))) + 1
    assert best < natural == color_columns(*given, shape).count
    found = color_columns(*given, shape, saving_cost=1e3)
    assert is_proper(columns, found.colors)
    assert found.count == best
    assert color_columns(*given, shape, saving_cost=1e-12).count == natural


@pytest.mark.parametrize("seed", range(3))
def test_no_more_colors_than_scipy(seed):
    sparse = pytest.importorskip("scipy.sparse")
    numdiff = pytest.importorskip("scipy.optimize._numdiff")
    rng = np.random.default_rng(seed)
    for matrix in (
        sparse.random_array((80, 100), density=0.05, rng=rng),
        sparse.random_array((100, 100), density=0.3, rng=rng),
        sparse.diags_array([np.ones(100)] * 3, offsets=[-1, 0, 1], shape=(100, 100)),
    ):
        a = sparse.csc_array(matrix)
        found = color_columns(a.indptr, a.indices, a.shape)
        natural = numdiff.group_columns(a, np.arange(a.shape[1]))
        assert found.count <= natural.max() + 1
        # random order may be luckier, but is not on structured patterns
        if seed == 0 and matrix.shape == (100, 100) and a.nnz < 300:
            assert found.count <= numdiff.group_columns(a).max() + 1


# What a caller gives


def test_groups_are_taken():
    found = color_groups([0, 1, 0, 2], 4)
    assert found.count == 3
    assert found.colors.dtype == np.uint8
    assert found.colors.tolist() == [0, 1, 0, 2]
    found = color_groups(np.array([7, 2**62, 7], np.uint64), 3)
    assert found.count == 2
    assert found.colors.tolist() == [0, 1, 0]
    assert color_groups([2, 0, 2], 3).colors.tolist() == [1, 0, 1]
    assert color_groups([], 0).count == 0
    many = color_groups(np.arange(300), 300)
    assert many.count == 300
    assert many.colors.dtype == np.intp
    mine = np.zeros(3, np.uint8)
    assert not np.shares_memory(color_groups(mine, 3).colors, mine)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], r"each of the 3 columns .* shape \(2,\)"),
        ([[0, 1, 0]], r"shape \(1, 3\)"),
        ([0.0, 1.0, 0.0], "dtype float64"),
        ([0, -2, 0], "column 1 the group -2"),
        (None, r"shape \(\)"),
    ],
)
def test_bad_groups_are_named(groups, message):
    with pytest.raises(ValueError, match=f"sparsity .*{message}"):
        color_groups(groups, 3)


@pytest.mark.parametrize("offset", [0, 100])
def test_a_clash_is_found(offset):
    columns = [[0, 2], [1], [2, 2, 0], [1, 3]]
    columns += [[4] for _ in range(offset)]
    given, shape = compressed(columns), (5, len(columns))
    rest = list(range(2, offset + 2))
    assert first_clash(*given, shape, color_groups([0, 1, 0, 1, *rest], 4 + offset)) == (0, 0, 2)
    assert first_clash(*given, shape, color_groups([0, 0, 1, 0, *rest], 4 + offset)) == (1, 1, 3)
    assert first_clash(*given, shape, color_groups([0, 0, 1, 1, *rest], 4 + offset)) is None
    with pytest.raises(ValueError, match=f"sparsity has {4 + offset} columns, but groups for 2"):
        first_clash(*given, shape, color_groups([0, 1], 2))


@settings(deadline=None)
@given(patterns, st.integers(0, 2**32))
def test_clashes_by_brute_force(pattern, seed):
    m, n = pattern[1:3]
    columns = random_columns(*pattern)
    groups = np.random.default_rng(seed).integers(0, 8, n)
    clash = first_clash(*compressed(columns), (m, n), color_groups(groups, n))
    clashes = [
        (i, j, k)
        for j, k in combinations(range(n), 2)
        if groups[j] == groups[k]
        for i in set(columns[j]) & set(columns[k])
    ]
    assert (clash is None) == (not clashes)
    if clash is not None:
        assert clash in clashes
        assert clash[0] == min(clashes)[0]


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1, 2], [0, 3], "has 3 rows, but an entry in row 3"),
        ([0, 1, 2], [0, -1], "has 3 rows, but an entry in row -1"),
        ([0, 1], [0], r"2 columns, .* shape \(3,\)"),
        ([0, 2, 1], [0], "rises from 0 to its 1 entries"),
        ([0, 1, 3], [0, 1], "rises from 0 to its 2 entries"),
        ([1, 1, 2], [0, 1], "rises from 0"),
        ([0.0, 1.0, 2.0], [0, 1], "integer indices, got float64"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bad_patterns_are_named(indptr, indices, message, dtype):
    indptr = np.array(indptr, dtype if isinstance(indptr[0], int) else float)
    with pytest.raises(ValueError, match=f"sparsity .*{message}"):
        color_columns(indptr, np.array(indices, dtype), (3, 2))


# Recovery


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 40, 300])
def test_entries_are_recovered(n, dtype, index):
    rng = np.random.default_rng(n)
    dense = rng.integers(1, 100, (30, n)) * (rng.random((30, n)) < (0.1 if n < 300 else 0.95))
    indptr, indices = of_dense(dense, index)
    found = color_columns(indptr, indices, dense.shape)
    assert (found.colors.dtype == np.uint8) == (n < 300)
    step = 2.0 ** rng.integers(-3, 4, n)
    seed = np.zeros((n, found.count))
    seed[np.arange(n), found.colors] = step
    differences = np.ascontiguousarray((dense @ seed).T, dtype)
    data = np.full(indices.size, np.nan, dtype)
    decompress(indptr, indices, found.colors, differences, 1 / step, data)
    expected = dense.T[dense.T != 0]
    assert np.array_equal(data, expected)
    decompress(indptr, indices, found.colors, differences, 1 / step, data, accumulate=True)
    assert np.array_equal(data, 2 * expected)

    u = rng.integers(-5, 6, n).astype(float)
    total, magnitude = product(indptr, indices, data, u, 30)
    assert np.array_equal(total, 2 * dense @ u)
    assert np.array_equal(magnitude, 2 * dense @ abs(u))

    step[0] = np.nan
    decompress(indptr, indices, found.colors, differences, 1 / step, data)
    first = int(indptr[1])
    assert np.isnan(data[:first]).all()
    assert np.array_equal(data[first:], expected[first:])


def test_index_dtypes_may_differ():
    indptr, indices = compressed(band(9, -1, 1))
    data = np.empty(indices.size)
    differences = np.arange(27.0).reshape(3, 9)
    found = color_columns(indptr.astype(np.int64), indices, (9, 9))
    decompress(indptr.astype(np.int64), indices, found.colors, differences, np.ones(9), data)
    columns = np.repeat(np.arange(9), np.diff(indptr))
    assert np.array_equal(data, differences[columns % 3, indices])


def test_recovery_does_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(module, "_SERIAL_ENTRIES", 100)
    monkeypatch.setattr(module, "_TASK_ENTRIES", 64)
    columns = random_columns(0, 500, 700, 5)
    columns[300] = list(range(300))
    indptr, indices = compressed(columns)
    rng = np.random.default_rng(0)
    found = color_columns(indptr, indices, (500, 700))
    differences, weight = rng.random((found.count, 500)), rng.random(700)
    column = np.repeat(np.arange(700), np.diff(indptr))
    expected = differences[found.colors[column], indices] * weight[column]
    for threads in (1, 2, 3):
        data = np.empty(indices.size)
        with calipers.num_threads(threads):
            decompress(indptr, indices, found.colors, differences, weight, data)
        assert np.array_equal(data, expected)


# Hessians


def check_star(dense, index=np.int32, shuffle=False):
    """Return a star coloring, its property and recovery being tested."""
    n = len(dense)
    indptr, indices = of_dense(dense, index)
    if shuffle:
        for j in range(n):
            np.random.default_rng(j).shuffle(indices[indptr[j] : indptr[j + 1]])
    star = star_coloring(indptr, indices, n)
    colors = star.colors.tolist()
    assert star.count == max(colors, default=-1) + 1
    edge = (dense != 0) & ~np.eye(n, dtype=bool)
    if n <= 12:
        for path in permutations(range(n), 4):
            if all(edge[i, j] for i, j in pairwise(path)):
                assert len({colors[v] for v in path}) > 2
    assert all(colors[i] != colors[j] for i, j in zip(*np.nonzero(edge), strict=True))

    step = 2.0 ** np.random.default_rng(0).integers(-3, 4, n)
    seed = np.zeros((n, star.count))
    seed[np.arange(n), star.colors] = step
    differences = np.ascontiguousarray((dense @ seed).T)
    data = np.full(indices.size, np.nan)
    pattern = Pattern(indptr, indices, (n, n), star)
    pattern.recover(differences, 1 / step, data, False, None)
    columns = np.repeat(np.arange(n), np.diff(indptr))
    assert np.array_equal(data, dense[indices, columns])
    pattern.recover(differences, 1 / step, data, True, None)
    assert np.array_equal(data, 2 * dense[indices, columns])

    # each entry and its mirror image are read from one place
    rows, chosen, _ = pattern.sources()
    place = {}
    for i, j, row, color in zip(indices, columns, rows, chosen, strict=True):
        assert place.setdefault(frozenset((i, j)), (row, color)) == (row, color)
    return star


def symmetric(seed, n, density):
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 50, (n, n)) * (rng.random((n, n)) < density)
    return np.tril(dense) + np.tril(dense, -1).T


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("density", [0.1, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("seed", range(5))
def test_star_colorings_by_brute_force(seed, density, index):
    check_star(symmetric(seed, 9, density), index, shuffle=seed % 2 == 1)


@pytest.mark.parametrize(("n", "density"), [(60, 0.05), (100, 0.03), (100, 0.3), (300, 0.5)])
def test_larger_hessians_are_recovered(n, density):
    star = check_star(symmetric(n, n, density))
    assert star.colors.dtype == (np.uint8 if star.count <= 256 else np.intp)


def arrow(n, hub):
    dense = np.diag(np.arange(1, n + 1))
    dense[hub, :] = dense[:, hub] = np.arange(2, n + 2)
    return dense


def of_columns(columns):
    dense = np.zeros((len(columns), len(columns)), int)
    for j, rows in enumerate(columns):
        dense[rows, j] = 1
    return dense


@pytest.mark.parametrize(
    ("dense", "count"),
    [
        (arrow(30, 0), 2),
        (arrow(30, 29), 2),
        (arrow(30, 12), 2),
        (of_columns(band(30, -1, 1)), 3),
        (np.eye(5, dtype=int), 1),
        (np.ones((6, 6), int), 6),
        (np.zeros((4, 4), int), 1),
        (np.zeros((0, 0), int), 0),
    ],
)
def test_known_hessians(dense, count):
    assert check_star(dense).count == count


def test_a_hessian_needs_fewer_colors_than_a_jacobian():
    columns = grid(9, 9)
    star = check_star(of_columns(columns))
    assert star.count < max(greedy(columns)) + 1


def test_repeated_entries_of_a_hessian():
    indptr, indices = compressed([[1, 1, 0], [2, 0, 1, 0], [1, 2, 2]])
    star = star_coloring(indptr, indices, 3)
    assert isinstance(star, StarColoring)
    dense = np.array([[1.0, 2, 0], [2, 3, 4], [0, 4, 5]])
    seed = np.eye(star.count)[star.colors]
    data = np.empty(indices.size)
    differences = np.ascontiguousarray((dense @ seed).T)
    Pattern(indptr, indices, (3, 3), star).recover(differences, np.ones(3), data, False, None)
    assert np.array_equal(data, dense[indices, np.repeat(np.arange(3), np.diff(indptr))])


@pytest.mark.parametrize("entry", [(0, 3), (3, 0), (4, 1)])
def test_a_hessian_must_be_symmetric(entry):
    dense = of_columns(band(5, -1, 1))
    dense[entry] = 1
    with pytest.raises(ValueError, match="sparsity of a Hessian must be symmetric"):
        star_coloring(*of_dense(dense), 5)


def test_a_large_arrow_hessian_takes_a_moment():
    n = 100_000
    indices = np.concatenate([np.arange(n), np.zeros(n, int)])
    columns = np.concatenate([np.zeros(n, int), np.arange(n)])
    indptr = np.zeros(n + 1, int)
    np.cumsum(np.bincount(columns), out=indptr[1:])
    assert star_coloring(indptr, indices[np.argsort(columns, kind="stable")], n).count == 2


def test_kernels_work_for_read_only_arrays():
    given = compressed(band(9, -1, 1))
    for x in given:
        x.flags.writeable = False
    assert color_columns(*given, (9, 9)).count == 3
    assert star_coloring(*given, 9).count == 3
