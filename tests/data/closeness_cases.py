"""Pairs whose verdict is known: wrong answers that other libraries give, and their bug reports.

The verdicts are mathematics (exact distance against exact tolerance), not the output of calipers.
Do not edit a case together with the rule that it judges.
"""

import numpy as np

INF, NAN = np.inf, np.nan
I64, U64 = np.iinfo(np.int64), np.iinfo(np.uint64)


def _pair(dtype, a, b):
    return np.array([a], dtype=dtype), np.array([b], dtype=dtype)


# name, (a, b), keyword arguments, verdict
EDGE = [
    ("f64 opposite huge, rtol 1.5", _pair("f8", 1.7e308, -1.7e308), {"rtol": 1.5}, False),
    ("f64 opposite huge, rtol 2.5", _pair("f8", 1.7e308, -1.7e308), {"rtol": 2.5}, True),
    ("c128 modulus overflows", _pair("c16", 0, 1.5e308 * (1 + 1j)), {}, False),
    ("c64 modulus overflows", _pair("c8", 0, 3e38 * (1 + 1j)), {}, False),
    ("f16 opposite huge, rtol 1.99", _pair("f2", 40000, -40000), {"rtol": 1.99}, False),
    ("f16 opposite huge, rtol 2.01", _pair("f2", 40000, -40000), {"rtol": 2.01}, True),
    ("i64 2**53 + 1, exact", _pair("i8", 2**53, 2**53 + 1), {"rtol": 0, "atol": 0}, False),
    ("i64 2**53 + 1, atol .5", _pair("i8", 2**53, 2**53 + 1), {"rtol": 0, "atol": 0.5}, False),
    ("i64 2**24 + 1, atol .5", _pair("i8", 2**24, 2**24 + 1), {"rtol": 0, "atol": 0.5}, False),
    ("u64 max and max - 1", _pair("u8", U64.max, U64.max - 1), {"rtol": 0, "atol": 0}, False),
    ("u8 5 and 6, atol 1", _pair("u1", 5, 6), {"rtol": 0, "atol": 1}, True),
    ("u8 0 and 255, atol 1", _pair("u1", 0, 255), {"rtol": 0, "atol": 1}, False),
    ("i8 127 and -128, atol 1", _pair("i1", 127, -128), {"rtol": 0, "atol": 1}, False),
    ("i64 max and min, atol 1", _pair("i8", I64.max, I64.min), {"rtol": 0, "atol": 1}, False),
    ("i64 0 and min, exact", _pair("i8", 0, I64.min), {"rtol": 0, "atol": 0}, False),
    ("i64 min and min", _pair("i8", I64.min, I64.min), {"rtol": 0, "atol": 0}, True),
    ("complex inf + 1j", _pair("c16", complex(INF, 1), complex(INF, 1)), {}, True),
    (
        "complex inf + nan j, equal_nan",
        _pair("c16", complex(INF, NAN), complex(INF, NAN)),
        {"equal_nan": True},
        True,
    ),
    (
        "complex nan in different parts, equal_nan",
        _pair("c16", complex(NAN, 1), complex(5, NAN)),
        {"equal_nan": True},
        True,
    ),
    ("f64 subnormals, rtol only", _pair("f8", 1e-310, 2e-310), {"atol": 0}, False),
    (
        "f32 .1 and f64 .1",
        (np.array([0.1], "f4"), np.array([0.1], "f8")),
        {"rtol": 1e-9, "atol": 0},
        False,
    ),
    ("bool, atol 1", _pair("?", True, False), {"rtol": 0, "atol": 1}, True),
    ("bool, exact", _pair("?", True, False), {"rtol": 0, "atol": 0}, False),
    ("1 and 1.1, b is the reference", _pair("f8", 1, 1.1), {"rtol": 0.0909091, "atol": 0}, True),
    ("1.1 and 1, b is the reference", _pair("f8", 1.1, 1), {"rtol": 0.0909091, "atol": 0}, False),
    ("inf and inf", _pair("f8", INF, INF), {}, True),
    ("inf and -inf", _pair("f8", INF, -INF), {}, False),
    ("inf and 1", _pair("f8", INF, 1), {}, False),
    ("1 and inf", _pair("f8", 1, INF), {}, False),
    ("1 and inf, no rtol", _pair("f8", 1, INF), {"rtol": 0, "atol": 1}, False),
    ("0.0 and -0.0, exact", _pair("f8", 0.0, -0.0), {"rtol": 0, "atol": 0}, True),
    ("nan and nan", _pair("f8", NAN, NAN), {}, False),
    ("nan and nan, equal_nan", _pair("f8", NAN, NAN), {"equal_nan": True}, True),
    ("nan and 1, equal_nan", _pair("f8", NAN, 1), {"equal_nan": True}, False),
    # beyond the table: each end of the exponent range, and 65-bit distances
    ("subnormal product rounds up", _pair("f8", 5e-324, 1.5e-323), {"rtol": 0.5, "atol": 0}, False),
    ("subnormal product exact", _pair("f8", 1.5e-323, 1e-323), {"rtol": 0.5, "atol": 0}, True),
    ("zero and subnormal, rtol 1", _pair("f8", 0, 5e-324), {"rtol": 1, "atol": 0}, True),
    ("huge tolerance, both overflow", _pair("f8", 1.7e308, -1.7e308), {"rtol": 1e300}, True),
    (
        "atol and difference overflow",
        _pair("f8", 1.7e308, -1.7e308),
        {"rtol": 1, "atol": 1.69e308},
        False,
    ),
    (
        "atol and difference overflow, close",
        _pair("f8", 1.7e308, -1.7e308),
        {"rtol": 1, "atol": 1.7e308},
        True,
    ),
    (
        "c128 tiny parts do not vanish",
        _pair("c16", 1e-200 * (1 + 1j), 2e-200 * (1 + 1j)),
        {"rtol": 0.4, "atol": 0},
        False,
    ),
    (
        "c128 tiny parts close",
        _pair("c16", 1e-200 * (1 + 1j), 2e-200 * (1 + 1j)),
        {"rtol": 0.6, "atol": 0},
        True,
    ),
    (
        "i64 and u64, 65 bits",
        (np.array([I64.min]), np.array([U64.max], "u8")),
        {"rtol": 0, "atol": 2.0**64},
        False,
    ),
    (
        "i64 and u64, 65 bits, close",
        (np.array([I64.min]), np.array([U64.max], "u8")),
        {"rtol": 0, "atol": 2.0**65},
        True,
    ),
    (
        "i64 and u64 with the same bits",
        (np.array([-1]), np.array([U64.max], "u8")),
        {"rtol": 0, "atol": 0},
        False,
    ),
    (
        "i64 and u64 beyond 2**53",
        (np.array([2**53 + 1]), np.array([2**53], "u8")),
        {"rtol": 0, "atol": 0},
        False,
    ),
]
