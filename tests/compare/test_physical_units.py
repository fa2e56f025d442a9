"""Arrays with a unit are compared in one unit, and those of other libraries by their library."""

import warnings

import numpy as np
import pytest

import calipers
from calipers import testing as npt


def _astropy():
    units = pytest.importorskip("astropy.units")
    return lambda numbers, name: numbers * getattr(units, name)


def _unyt():
    unyt = pytest.importorskip("unyt")
    return lambda numbers, name: numbers * getattr(unyt, name)


def _pint():
    registry = pytest.importorskip("pint").UnitRegistry()
    return lambda numbers, name: numbers * getattr(registry, name)


@pytest.fixture(params=[_astropy, _unyt, _pint], ids=["astropy", "unyt", "pint"])
def quantity(request):
    make = request.param()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of pint, whose numbers are taken without their unit
        yield lambda numbers, name: make(np.array(numbers), name)


def test_equal_numbers_of_different_units_are_not_equal(quantity):
    meters = quantity([1.0, 2.0], "m")
    for name in "cm", "s":
        other = quantity([1.0, 2.0], name)
        assert not calipers.array_equal(meters, other)
        assert not calipers.compare(meters, other)
        assert not calipers.compare([meters], [other])
        assert calipers.approx(other) != meters
        for check in calipers.assert_close, npt.assert_allclose, npt.assert_equal, npt.assert_close:
            with pytest.raises(AssertionError):
                check(meters, other)
    assert not calipers.allclose(meters, quantity([1.0, 2.0], "cm"))
    assert calipers.isclose(meters, quantity([1.0, 200.0], "cm")).tolist() == [False, True]


def test_a_length_is_the_same_in_each_unit(quantity):
    for numbers, other in (([1.0, 2.0], [1000.0, 2000.0]), ([1, 2], [1000, 2000])):
        a, b = quantity(numbers, "km"), quantity(other, "m")
        assert calipers.array_equal(a, b)
        assert calipers.array_equal(a, b, memory_limit=100)
        assert calipers.allclose(a, b)
        assert calipers.isclose(a, b).all()
        assert calipers.compare(a, b)
        assert calipers.compare({"x": [a, 1.0]}, {"x": [b, 1.0]})
        assert calipers.approx(b) == a
        for check in (
            *(calipers.assert_close, npt.assert_close, npt.assert_allclose, npt.assert_equal),
            *(npt.assert_array_equal, npt.assert_almost_equal, npt.assert_array_max_ulp),
            *(npt.assert_array_almost_equal_nulp,),
        ):
            check(a, b)
    npt.assert_array_less(quantity([1.0], "km"), quantity([1100.0], "m"))
    with pytest.raises(AssertionError):
        npt.assert_array_less(quantity([1.0], "km"), quantity([900.0], "m"))
    assert calipers.compare(quantity(1.0, "km"), quantity(1000.0, "m"))
    npt.assert_approx_equal(quantity(1.0, "km"), quantity(1000.0, "m"))
    assert calipers.first_nonfinite(quantity([1.0, np.nan], "m")) == (1,)


def test_the_report_is_in_the_unit_of_actual(quantity):
    a, b = quantity([1.0, 2.0], "km"), quantity([1000.0, 2001.0], "m")
    report = calipers.compare(a, b, rtol=0, atol=0.0005)
    worst = report.worst("absolute")
    assert (worst.actual, worst.expected) == (2.0, 2.001)
    assert worst.absolute == pytest.approx(0.001)
    assert worst.relative == pytest.approx(0.001 / 2.001)
    unit = report.actual_dtype.removeprefix("float64[").removesuffix("]")
    assert unit in ("km", "kilometer")
    assert f"<= 0.0005 {unit} + 0*|expected|" in str(report)
    assert calipers.compare(a, b, rtol=0, atol=report.passing_atol)
    apart = calipers.compare(a, quantity([1.0, 2.0], "s"))
    assert "units differ: actual has unit" in str(apart)


def test_tolerances_have_units_of_their_own(quantity):
    a, b = quantity([1.0, 2.0], "km"), quantity([1000.0, 2001.0], "m")
    for atol, passes in ((quantity(200.0, "cm"), True), (quantity(50.0, "cm"), False)):
        options = {"rtol": 0, "atol": atol}
        assert calipers.allclose(a, b, **options) is passes
        assert calipers.isclose(a, b, **options).tolist() == [True, passes]
        assert bool(calipers.compare(a, b, **options)) is passes
        assert bool(calipers.compare([a], [b], **options)) is passes
        assert (calipers.approx(b, **options) == a) is passes
        chunks = iter([a[:1], a[1:]]), iter([b[:1], b[1:]])
        assert calipers.allclose(*chunks, **options) is passes
        if passes:
            npt.assert_allclose(a, b, **options)
        else:
            with pytest.raises(AssertionError):
                npt.assert_allclose(a, b, **options)
    second = quantity(1.0, "s")
    for check in calipers.allclose, calipers.isclose, calipers.compare, calipers.assert_close:
        with pytest.raises(TypeError, match="atol must have the unit"):
            check(a, b, rtol=0, atol=second)
        with pytest.raises(TypeError, match="atol must have no unit here"):
            check([1.0], [1.0], rtol=0, atol=second)
        with pytest.raises(TypeError, match="rtol must have no unit here"):
            check(a, b, rtol=second, atol=0)
    assert calipers.allclose(a, b, rtol=second / second, atol=0)


def test_plain_numbers_beside_a_unit(quantity):
    meters = quantity([1.0, 2.0], "m")
    ratio = meters / quantity([1.0, 2.0], "cm")
    assert calipers.array_equal(ratio, [100.0, 100.0])
    assert calipers.allclose([100.0, 100.0], ratio)
    assert calipers.compare(ratio, np.array([100.0, 100.0]))
    assert not calipers.array_equal(meters, [1.0, 2.0])
    assert not calipers.array_equal([1.0, 2.0], meters)
    assert calipers.allclose(quantity([0.0, 0.0], "m"), 0.0)  # of any unit
    if type(meters).__module__.startswith("unyt"):  # takes numbers to be in the other's unit
        assert calipers.allclose(meters, [1.0, 2.0])
        return
    for pair in (meters, [1.0, 2.0]), ([1.0, 2.0], meters), (meters, 1.0):
        assert not calipers.compare(*pair)
        for ask in calipers.allclose, calipers.isclose:
            with pytest.raises(TypeError, match=r"units differ: a has .*, b has .*unit"):
                ask(*pair)


def test_numbers_with_units_in_lists_are_not_made_an_array(quantity):
    meter, hundred = quantity(1.0, "m"), quantity(100.0, "cm")
    objects = np.empty(1, object), np.empty(1, object)
    objects[0][0], objects[1][0] = meter, hundred
    for ask in calipers.allclose, calipers.isclose:
        for pair in ([meter], [hundred]), ([[1.0], [meter]], [[1.0], [hundred]]), objects:
            with pytest.raises(
                TypeError,
                match=r"a holds numbers with units .*which takes the items of a",
            ):
                ask(*pair)
    with pytest.raises(
        TypeError, match=r"a1 holds numbers with units .*which takes the items of a1"
    ):
        calipers.array_equal([meter], [meter])
    with pytest.raises(
        TypeError,
        match=r"actual holds .*which takes the items of actual.tolist\(\)",
    ):
        calipers.compare(*objects)
    assert calipers.compare(objects[0].tolist(), objects[1].tolist())
    assert calipers.compare([meter], [hundred])
    assert not calipers.compare([meter], [quantity(1.0, "cm")])
    assert calipers.array_equal(*objects)  # by their own ==


def test_arrays_in_chunks_keep_their_unit(quantity):
    array = pytest.importorskip("dask.array")
    held = quantity([1000.0, 2001.0], "m")
    chunks = array.from_array(np.array([1.0, 2.001]), chunks=1).map_blocks(
        lambda block: quantity(block, "km"), meta=quantity(np.ones(0), "km")
    )
    assert calipers.allclose(chunks, held)
    assert calipers.array_equal(chunks, held)
    assert calipers.isclose(chunks, held).all()
    assert not calipers.array_equal(chunks, quantity([1.0, 2.001], "s"))
    near = quantity([1000.0, 2000.0], "m")
    assert calipers.compare(chunks, near, rtol=0, atol=held[0] / 500)
    assert not calipers.compare(chunks, near, rtol=0, atol=held[0] / 5000)
    apart = calipers.compare(chunks, quantity([1.0, 2.001], "s"))
    assert "units differ" in str(apart)
    with pytest.raises(AssertionError, match="units differ"):
        calipers.assert_close(chunks, quantity([1.0, 2.001], "s"))


def test_arrays_of_xarray_keep_their_unit(quantity):
    xarray = pytest.importorskip("xarray")
    a, b, c = (
        xarray.DataArray(quantity([1.0, 2.0], "m")),
        xarray.DataArray(quantity([1.0, 2.0], "cm")),
        xarray.DataArray(quantity([100.0, 200.0], "cm")),
    )
    for ask in calipers.allclose, calipers.array_equal, calipers.compare:
        assert not ask(a, b)
        assert ask(a, c)


def test_structures_and_masks_with_units_of_astropy():
    units = pytest.importorskip("astropy.units")
    masked = pytest.importorskip("astropy.utils.masked").Masked
    pairs = units.Quantity(np.array([(1.0, 2.0)], "f8,f8"), "m,s")
    assert calipers.compare(pairs, pairs.to("cm,s"))
    assert calipers.array_equal(pairs, pairs.to("cm,s"))
    assert not calipers.array_equal(pairs, units.Quantity(pairs.value, "cm,s"))
    lengths = masked([1.0, 2.0] * units.m, mask=[False, True])
    others = masked([100.0, 300.0] * units.cm, mask=[False, True])
    assert calipers.allclose(lengths, others)
    assert calipers.array_equal(lengths, others) == np.array_equal(lengths, others)
    assert not calipers.array_equal(lengths, masked([1.0, 2.0] * units.cm, mask=[False, True]))


class Temperatures:
    """An array of a library that implements some functions of NumPy."""

    def __init__(self, values, implemented):
        self.values, self.implemented = np.array(values), implemented

    def __array__(self, *args, **kwargs):
        pytest.fail("its numbers were taken without their meaning")

    def __array_function__(self, function, types, args, kwargs):
        if function.__name__ not in self.implemented:
            return NotImplemented
        return function(*(getattr(x, "values", x) for x in args), **kwargs)


def test_functions_that_a_library_implements_are_its_own():
    a = Temperatures([1.0, 2.0], {"allclose", "isclose", "array_equal"})
    b = Temperatures([1.0, 3.0], {"allclose", "isclose", "array_equal"})
    assert calipers.isclose(a, b).tolist() == [True, False]
    assert not calipers.allclose(a, b)
    assert calipers.allclose(a, [1.0, 2.0])
    assert calipers.array_equal(a, a)
    assert not calipers.array_equal(a, b)


def test_functions_that_a_library_does_not_implement_are_refused_by_name():
    x = Temperatures([1.0], ())
    for ask, name in (
        (calipers.isclose, "a is of type .* Temperatures, which numpy.isclose does not take"),
        (calipers.allclose, "a is of type .* Temperatures, which numpy.isclose does not take"),
        (
            calipers.array_equal,
            "a1 is of type .* Temperatures, which numpy.array_equal does not take",
        ),
        (calipers.compare, "actual is of type .* Temperatures, which is not a NumPy array"),
        (calipers.assert_close, "actual is of type .* Temperatures, which is not a NumPy array"),
        (npt.assert_allclose, "actual is of type .* Temperatures, which is not a NumPy array"),
    ):
        with pytest.raises(TypeError, match=f"{name}: pass a NumPy array"):
            ask(x, x)
    with pytest.raises(TypeError, match=r"chunk 0 of a is of type .* Temperatures"):
        calipers.allclose(iter([x]), iter([x]))


def test_ragged_arrays_of_awkward():
    awkward = pytest.importorskip("awkward")
    a, b = awkward.Array([[1.0, 2.0], [3.0]]), awkward.Array([[1.0, 2.0], [4.0]])
    assert calipers.array_equal(a, a)
    assert not calipers.array_equal(a, b)
    assert awkward.to_list(calipers.isclose(a, b)) == [[True, True], [False]]
    assert calipers.allclose(a, a)
    assert not calipers.allclose(a, b)
    for ask in calipers.compare, calipers.assert_close:
        with pytest.raises(
            TypeError, match=r"actual is of type awkward Array, .*compare actual.to_list"
        ):
            ask(a, b)
    assert calipers.compare(a.to_list(), a.to_list())
    assert not calipers.compare(a.to_list(), b.to_list())


def test_sparse_arrays_of_pydata_are_refused_with_advice_that_works():
    sparse = pytest.importorskip("sparse")
    x = sparse.COO(np.eye(2))
    for ask in calipers.allclose, calipers.isclose, calipers.array_equal, calipers.compare:
        with pytest.raises(
            TypeError, match=r"is of type sparse COO, .*: pass (a|a1|actual).todense\(\)"
        ):
            ask(x, x)
        assert np.all(ask(x.todense(), x.todense()))


def test_assertions_take_numbers_of_pint():
    metre = pytest.importorskip("pint").UnitRegistry().metre
    for number in 1, 1.0, np.float64(1):
        for strict in False, True:
            npt.assert_allclose(number * metre, number * metre, strict=strict)
            npt.assert_array_equal(number * metre, number * metre, strict=strict)
        npt.assert_equal(1000 * number * metre, (1000 * number * metre).to("km"))
        with pytest.raises(AssertionError, match="1 of 1 element differs"):
            npt.assert_allclose(number * metre, 2 * number * metre)
