"""Checks of derivatives that run on a device."""

import math

import numpy as np
import pytest
from numba import cuda

import calipers
from calipers._cuda import runtime

X = np.array([0.3, -1.2, 2.0, 0.7])
Y = np.empty(4)


def fill(x, out):
    for i in range(out.size):
        out[i] = math.sin(x[i]) * x[0]


def pull(x, w, slope):
    for i in range(x.size):
        slope[i] = w[i] * math.cos(x[i]) * x[0]
    for i in range(x.size):
        slope[0] += w[i] * math.sin(x[i])


def push(x, v, out):
    for i in range(x.size):
        out[i] = v[i] * math.cos(x[i]) * x[0] + math.sin(x[i]) * v[0]


def wrong(x, w, slope):
    for i in range(x.size):
        slope[i] = w[i] * math.cos(x[i]) * x[0] * (1.0001 if i == 2 else 1.0)
    for i in range(x.size):
        slope[0] += w[i] * math.sin(x[i])


FORM = {"out_like": Y, "inplace": "write"}


def compiled(f):
    return cuda.jit(device=True)(f)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_compiled_functions(fast_mode):
    given = {"vjp": compiled(pull), "jvp": compiled(push), "fast_mode": fast_mode}
    report = calipers.gradcheck(compiled(fill), X, **given, **FORM)
    assert report
    assert set(report.forms) >= {"vjp", "jvp"}
    report = calipers.gradcheck(
        compiled(fill), X, vjp=compiled(wrong), raise_exception=False, fast_mode=fast_mode, **FORM
    )
    assert report.verdict == "FAIL"
    assert "d in[0][2]" in report.reason or fast_mode


def test_arrays_on_the_device():
    x = cuda.to_device(X)
    report = calipers.gradcheck(fill, x, vjp=pull, **{**FORM, "out_like": cuda.to_device(Y)})
    assert report
    with pytest.raises(calipers.WrongDerivativeError):
        calipers.gradcheck(fill, x, vjp=wrong, **FORM)
    np.testing.assert_array_equal(x.copy_to_host(), X)


def test_functions_of_arrays_that_the_user_launches():
    @cuda.jit
    def double(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 2 * x[i]

    def f(x, factor):
        assert hasattr(x, "__cuda_ndarray__")
        out = cuda.device_array(x.shape)
        double[runtime._LEAST_BLOCKS, 8](x, out)
        return out if factor == 1 else None

    given = {"args": (1,), "argnums": 0}
    assert calipers.gradcheck(f, cuda.to_device(X), vjp=lambda x, n, w: f(w, n), **given)
    report = calipers.gradcheck(
        f, cuda.to_device(X), jvp=lambda x, n, v: f(f(v, n), n), raise_exception=False, **given
    )
    assert report.verdict == "FAIL"


def test_a_derivative_that_changes_its_argument():
    def spoil(x, w, slope):
        for i in range(x.size):
            slope[i] = w[i]
        x[0] = 1.0

    def same(x, out):
        for i in range(out.size):
            out[i] = x[i]

    report = calipers.gradcheck(same, cuda.to_device(X), vjp=spoil, raise_exception=False, **FORM)
    assert "input 0" in str(report)
    assert not report


@pytest.mark.parametrize("f", [fill, compiled(fill)])
def test_a_missing_derivative_is_named_as_on_the_host(f):
    for x in (X, cuda.to_device(X)):
        with pytest.raises(ValueError, match=r"needs a derivative to check: pass at least one of"):
            calipers.gradcheck(f, x, out_like=Y)
