"""What a record tells of a function later: equal, rounding or not; and of files that are none."""

import json
import os
import pickle
import stat
import zipfile

import numpy as np
import pytest

import calipers
from calipers import golden

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((20, 30)).astype(np.float32)


def sums(x):
    return x.sum(1)


def running(x):
    return np.cumsum(x, 1)[:, -1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.npz"


def edit(path, **changed):
    """Write a record again with some of its arrays changed, or left out."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays.update(changed)
    np.savez(path, **{name: x for name, x in arrays.items() if x is not None})


def about(path):
    with np.load(path) as file:
        return json.loads(str(file["about"]))


def edit_about(path, **changed):
    edit(path, about=np.array(json.dumps(about(path) | changed)))


# Verdicts


def test_the_same_function_is_equal(path):
    golden.record(path, sums, X)
    found = golden.check(path, sums)
    assert found
    assert found.kind == "EQUAL"
    assert found.changes == ()
    assert found.reason == "all 20 elements are equal to the last bit"


def test_another_order_of_summation_is_rounding(path):
    golden.record(path, sums, X)
    found = golden.check(path, running)
    assert found
    assert found.kind == "ROUNDING"
    assert 0 < found.trial.units < 5 < found.trial.allowed == 4 + 30**0.5
    assert found.trial.differing == np.sum(sums(X) != running(X))


def test_units_are_those_of_the_recorded_function(path):
    x = np.full(64, 3.0)
    golden.record(path, lambda x: 2 * x, x)
    found = golden.check(path, lambda x: 2 * x * (1 + 2.0**-40))
    # Moves of the input and the rounding of the result make sqrt(2) u; 2**-40 is 2**13 u.
    assert found.trial.units == pytest.approx(2**13 / 2**0.5, rel=0.05)
    assert found.kind == "DIFFERENT"


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.sum(1) * np.float32(1 + 1e-3),
        lambda x: x[:, 1:].sum(1),
        lambda x: np.where(np.arange(20) == 7, np.nan, x.sum(1)).astype(np.float32),
        lambda x: x.sum(1, dtype=np.float64),
        lambda x: x.sum(1)[:, None],
        lambda x: (x.sum(1), x.sum(1)),
        lambda x: (),
    ],
)
def test_another_function_is_different(path, other):
    golden.record(path, sums, X)
    found = golden.check(path, other)
    assert not found
    assert found.kind == "DIFFERENT"
    assert str(found).startswith("DIFFERENT: ")


def test_a_difference_says_where_it_is_largest(path):
    golden.record(path, lambda x: (x, x > 0), X)
    other = np.where(np.arange(600).reshape(X.shape) == 67, np.float32(7.5), X)
    found = golden.check(path, lambda x: (other, x > 0))
    assert found.reason.endswith(f"; out[0][2, 7] is 7.5, and was {X[2, 7]:.6g}")
    assert "RMSE" not in found.reason
    found = golden.check(path, lambda x: (x, (x > 0) ^ (other != x)))
    assert f"; out[1][2, 7] is {X[2, 7] <= 0}, and was {X[2, 7] > 0}" in found.reason


def test_a_record_of_a_function_that_is_not_deterministic_warns(path):
    noise = np.random.default_rng(0)
    with pytest.warns(calipers.CalipersWarning, match="f is not deterministic .second call: 600"):
        golden.record(path, lambda x: x + noise.random(x.shape), X)


def test_a_record_has_the_name_that_was_passed(tmp_path):
    golden.record(tmp_path / "sums", sums, X)
    assert [x.name for x in tmp_path.iterdir()] == ["sums"]
    assert golden.check(tmp_path / "sums", sums).kind == "EQUAL"


def test_errors_of_one_result_are_not_hidden_by_larger_results(path):
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    golden.record(path, lambda x: (x * 1e6, x * 1e-6), x)
    assert golden.check(path, lambda x: (x * 1e6, x / 1e6))
    assert golden.check(path, lambda x: (x * 1e6, x * 1.001e-6)).kind == "DIFFERENT"


def test_ill_conditioned_results_may_differ_by_more(path):
    x = np.array([[1.0, 1.0 + 2.0**-30]])
    golden.record(path, lambda x: x[:, 1] - x[:, 0], x)
    # 2**-51 is 2 ulp of the inputs, and 2**-21 of the result.
    assert golden.check(path, lambda x: x[:, 1] - x[:, 0] + 2.0**-51).kind == "ROUNDING"
    golden.record(path, lambda x: x[:, 1], x)
    assert golden.check(path, lambda x: x[:, 1] + 2.0**-21).kind == "DIFFERENT"


def test_a_function_that_raises_now(path):
    golden.record(path, sums, X)
    found = golden.check(path, lambda x: x.total())
    assert not found
    assert found.kind == "RAISES"
    assert "f raises AttributeError" in found.reason


def test_a_function_that_raises_then(path):
    with pytest.raises(AttributeError):
        golden.record(path, lambda x: x.total(), X)
    assert not path.exists()


def test_nan_infinities_and_nothing(path):
    def f(x):
        return np.array([np.nan, np.inf, -0.0]), np.zeros((0, 3)), np.float32(1), x > 0

    golden.record(path, f, X)
    assert golden.check(path, f).kind == "EQUAL"
    found = golden.check(path, lambda x: (np.array([np.nan, -np.inf, -0.0]), *f(x)[1:]))
    assert found.kind == "DIFFERENT"
    found = golden.check(path, lambda x: (np.array([np.nan, np.inf, 0.0]), *f(x)[1:]))
    assert (found.kind, found.trial.differing) == ("ROUNDING", 1)


def test_functions_that_write(path):
    def doubles(x):
        x *= 2
        return x

    x = X.copy()
    golden.record(path, doubles, x)
    assert (x == X).all()
    assert golden.check(path, doubles).kind == "EQUAL"
    assert golden.check(path, doubles, x).kind == "EQUAL"
    assert (x == X).all()


# Inputs


def test_inputs_come_back_as_they_were(path):
    seen = []

    def see(*inputs):
        seen.append(inputs)
        return inputs[0].sum()

    given = (
        *(X[::2, ::-1], X.astype(">f8"), np.arange(3), np.array(True), np.complex64(1 + 2j)),
        *(2.5, np.float32(1.5), 7, "flag", None, True),
    )
    golden.record(path, see, given)
    seen.clear()
    assert golden.check(path, see).kind == "EQUAL"
    for then, now in zip(given, seen[0], strict=True):
        assert np.array_equal(now, then)
        assert np.shape(now) == np.shape(then)
        if isinstance(then, np.ndarray):
            assert now.dtype == then.dtype
    assert [type(x) for x in seen[0][-4:]] == [int, str, type(None), bool]
    assert golden.check(path, see, given).kind == "EQUAL"
    native = (given[0], given[1].astype("=f8"), *given[2:])
    assert golden.check(path, see, native).kind == "EQUAL"


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ((X, 4), r"inputs\[1\] must be as recorded in .*: 3, got 4"),
        ((X, 3.0), r"inputs\[1\] must be as recorded in .*: 3, got float64 of shape \(\)"),
        ((X + 1, 3), r"inputs\[0\] must be as recorded in .* float32 of shape \(20, 30\) and hash"),
        ((X.T, 3), r"got float32 of shape \(30, 20\)"),
        ((X.astype(float), 3), r"got float64 of shape \(20, 30\)"),
        ((X,), "recorded with 2 inputs, got 1"),
    ],
)
def test_other_inputs_are_refused(path, other, match):
    golden.record(path, lambda x, n: x * n, (X, 3))
    with pytest.raises(ValueError, match=match):
        golden.check(path, lambda x, n: x * n, other)


def test_large_inputs_are_known_by_their_hash(path):
    x = np.zeros(2**21 + 1)
    golden.record(path, np.sum, x)
    assert path.stat().st_size < 10000
    with pytest.raises(ValueError, match="has only a hash of its inputs; pass the same"):
        golden.check(path, np.sum)
    assert golden.check(path, np.sum, x)
    x[-1] = 5e-324
    with pytest.raises(ValueError, match="and hash"):
        golden.check(path, np.sum, x)
    golden.record(path, np.sum, x[:-1])
    assert golden.check(path, np.sum)


def test_tensors_are_known_by_their_hash(path):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    golden.record(path, lambda x: x.sum(1), x)
    with pytest.raises(ValueError, match="pass the same inputs"):
        golden.check(path, lambda x: x.sum(1))
    assert golden.check(path, lambda x: x.sum(1), x).kind == "EQUAL"
    assert golden.check(path, running, X)
    assert "torch.backends.cuda.matmul.allow_tf32" in about(path)["environment"]


@pytest.mark.parametrize(
    "name",
    [
        *("ROCBLAS_INTERNAL_FP16_ALT_IMPL", "MIOPEN_DEBUG_CONVOLUTION_ATTRIB_FP16_ALT_IMPL"),
        *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "OMP_NUM_THREADS"),
    ],
)
def test_variables_that_choose_formats_are_recorded(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    path = tmp_path / "y.npz"
    golden.record(path, np.exp, X)
    environment = about(path)["environment"]
    assert environment[name] == "1"
    assert environment["blas"] != "unknown"
    assert environment["threads"]


@pytest.mark.parametrize("bad", [object(), [1.0], np.array([None]), np.array(["a"]), {"x": 1}])
def test_inputs_that_cannot_be_kept(path, bad):
    with pytest.raises(TypeError, match=r"inputs\[1\] must be"):
        golden.record(path, lambda *x: x[0], (X, bad))
    assert not path.exists()


# What has changed


def test_changes_are_told(path):
    golden.record(path, sums, X)
    own = about(path)["environment"]
    assert own["versions"]["numpy"] == np.__version__
    old = own | {"versions": own["versions"] | {"numpy": "1.0"}, "cpu": "abacus"}
    edit_about(path, environment=old)
    found = golden.check(path, sums)
    assert found.changes == (f"numpy: 1.0 -> {np.__version__}", f"cpu: abacus -> {own['cpu']}")
    assert "numpy: 1.0 -> " in str(found)
    with calipers.num_threads(3):
        assert any("3, calipers' own" in text for text in golden.check(path, sums).changes)


def test_flags_of_torch_are_told(path):
    torch = pytest.importorskip("torch")
    golden.record(path, sums, X)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        (changed, *_) = golden.check(path, sums).changes
    finally:
        torch.set_float32_matmul_precision(before)
    assert changed == "torch.get_float32_matmul_precision: highest -> high"
    assert golden.check(path, sums).changes == ()


def test_flushed_subnormals_are_told(path):
    torch = pytest.importorskip("torch")
    golden.record(path, sums, X)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        changes = golden.check(path, sums).changes
    finally:
        torch.set_flush_denormal(False)
    assert changes == ("flushes_subnormals: False -> True",)


# Files


def test_a_record_is_replaced_when_the_new_one_is_whole(path, monkeypatch):
    golden.record(path, sums, X)
    kept = path.read_bytes()

    def stops(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", stops)
    with pytest.raises(KeyboardInterrupt):
        golden.record(path, running, X)
    assert path.read_bytes() == kept
    assert [*path.parent.iterdir()] == [path]
    monkeypatch.undo()
    golden.record(path, running, X)
    assert golden.check(path, running).kind == "EQUAL"
    assert [*path.parent.iterdir()] == [path]


def test_a_record_that_is_written_while_another_is(path, monkeypatch):
    def meanwhile(file, *args, **arrays):
        monkeypatch.undo()
        golden.record(path, running, X)
        assert golden.check(path, running).kind == "EQUAL"
        np.savez_compressed(file, *args, **arrays)

    monkeypatch.setattr(np, "savez_compressed", meanwhile)
    golden.record(path, sums, X)
    assert golden.check(path, sums).kind == "EQUAL"
    golden.record(os.fsencode(path), running, X)
    assert golden.check(path, running).kind == "EQUAL"
    assert os.listdir(path.parent) == [path.name]


def test_a_record_has_no_pickle_and_others_may_read_it(path):
    golden.record(str(path), sums, X)
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
    assert names == {"about.npy", "result0.npy", "unit.npy", "input0.npy"}
    with np.load(path, allow_pickle=False) as file:
        assert (file["input0"] == X).all()
        assert (file["result0"] == sums(X)).all()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_record_that_is_cut_off(path):
    golden.record(path, sums, X)
    whole = path.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a golden record, or incomplete"):
            golden.check(path, sums)


def test_a_record_with_a_wrong_byte(path):
    golden.record(path, sums, X)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="is not a golden record, or incomplete"):
        golden.check(path, sums)


def test_files_of_others(path):
    np.save(path.with_suffix(".npy"), X)
    path.with_suffix(".npy").rename(path)
    foreign = "is not a golden record, or incomplete"
    for write in (
        lambda: None,
        lambda: np.savez(path, X),
        lambda: np.savez(path, about=np.array("{}")),
        lambda: np.savez(path, about=np.array("[1]")),
        lambda: np.savez(path, about=np.array('{"mark": "calipers golden record"}')),
        lambda: np.savez(path, about=np.array([{}], object)),
        lambda: path.write_bytes(pickle.dumps({})),
        lambda: path.write_text("text"),
    ):
        write()
        with pytest.raises(ValueError, match=foreign):
            golden.check(path, sums)


def test_records_of_another_version_or_with_parts_missing(path):
    golden.record(path, sums, X)
    edit_about(path, version=2)
    with pytest.raises(ValueError, match="has format version 2, and this calipers reads 1"):
        golden.check(path, sums)
    edit_about(path, version=1)
    assert golden.check(path, sums)
    edit(path, unit=None, input0=None)
    with pytest.raises(ValueError, match="is incomplete: it has no unit, input0"):
        golden.check(path, sums)


def test_files_that_are_not_there(path):
    with pytest.raises(FileNotFoundError):
        golden.check(path, sums)
    with pytest.raises(FileNotFoundError):
        golden.record(path / "none" / "x", sums, X)
    with pytest.raises(IsADirectoryError):
        golden.check(path.parent, sums)


def test_what_cannot_be_called(path):
    with pytest.raises(TypeError, match="f must be callable, got int"):
        golden.record(path, 3, X)
    golden.record(path, sums, X)
    with pytest.raises(TypeError, match="f must be callable, got int"):
        golden.check(path, 3)


def test_verdicts_are_for_machines(path):
    golden.record(path, sums, X)
    edit_about(path, environment={f"name{k}": "x" * 200 for k in range(50)})
    for f in (sums, running, np.sin, lambda x: x[100]):
        found = golden.check(path, f)
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["kind"] == found.kind
        assert len(str(found).splitlines()) < 20
    assert calipers.golden is golden


def test_integers_that_no_rounding_moves_are_compared_exactly(tmp_path):
    """0.5 stands on the threshold, so that rounding moves its verdict, but not that of 0.75."""
    path = tmp_path / "above.npz"
    x = np.linspace(0, 1, 5)
    golden.record(path, lambda x: x > 0.5, x)
    assert golden.check(path, lambda x: x > 0.5).kind == "EQUAL"
    assert golden.check(path, lambda x: x >= 0.5).kind == "ROUNDING"
    assert golden.check(path, lambda x: x > 0.8).kind == "DIFFERENT"


def test_results_under_other_names_are_others(tmp_path):
    path = tmp_path / "losses.npz"
    x = np.arange(3.0)
    golden.record(path, lambda x: {"loss": x, "more": {"mae": 2 * x}}, x)
    assert golden.check(path, lambda x: {"more": {"mae": 2 * x}, "loss": x}).kind == "EQUAL"
    found = golden.check(path, lambda x: {"loss": x, "more": {"rmse": 2 * x}})
    assert found.kind == "DIFFERENT"
    assert found.reason == (
        "results are named ['loss'], ['more']['rmse'] instead of ['loss'], ['more']['mae']"
    )
    assert "named nothing" in golden.check(path, lambda x: (x, 2 * x)).reason


def test_results_of_another_number_are_counted(tmp_path):
    path = tmp_path / "pairs.npz"
    x = np.arange(3.0)
    golden.record(path, lambda x: (x, 2 * x), x)
    assert golden.check(path, lambda x: x).reason == "number of results 1 instead of 2"
    golden.record(path, lambda x: {"b": x, "w": (x, 2 * x)}, x)
    found = golden.check(path, lambda x: {"b": x, "w": (x,)})
    assert found.reason == "number of results 1, 1 instead of 1, 2"


def test_functions_of_integers_are_kept_in_the_format_of_their_results(tmp_path):
    path = tmp_path / "logits.npz"
    random = np.random.default_rng(0)
    table = random.standard_normal((50, 30)).astype(np.float32)
    tokens = random.integers(0, 50, (20, 40))
    golden.record(path, lambda x: table[x].sum(axis=1), tokens)
    assert golden.check(path, lambda x: table[x][:, ::-1].cumsum(axis=1)[:, -1]).kind == "ROUNDING"
    assert golden.check(path, lambda x: table[x].sum(axis=1) * 1.001).kind == "DIFFERENT"


def test_results_of_bfloat16_are_not_of_float32(path):
    torch = pytest.importorskip("torch")
    x = torch.arange(5.0).bfloat16()
    golden.record(path, torch.sin, x)
    assert golden.check(path, torch.sin, x).kind == "EQUAL"
    found = golden.check(path, lambda x: torch.sin(x).float(), x)
    assert (found.kind, found.reason) == ("DIFFERENT", "dtype float32 instead of bfloat16")


@pytest.mark.skipif(os.name == "nt", reason="needs modes and links")
def test_a_record_behind_a_link_is_replaced_as_it_is(tmp_path):
    path, link = tmp_path / "kept.npz", tmp_path / "link.npz"
    golden.record(path, np.sin, X)
    path.chmod(0o640)
    link.symlink_to(path)
    golden.record(link, np.cos, X)
    assert link.is_symlink()
    assert golden.check(path, np.cos)
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_folder_that_is_not_there_is_told_before_anything_is_called(tmp_path):
    def f(x):
        raise AssertionError

    with pytest.raises(FileNotFoundError, match="its folder does not exist: create it first"):
        golden.record(tmp_path / "no" / "x.npz", f, np.ones(3))


@pytest.mark.parametrize("other", [np.argmin, lambda x: np.full_like(X, np.nan)])
def test_units_are_not_told_of_what_nothing_rounds(tmp_path, other):
    """Integers would be 1e46 units apart, and NaN is no number of them."""
    f = (lambda x: np.argmax(x)) if other is np.argmin else (lambda x: np.exp(X))
    golden.record(tmp_path / "x", f, X)
    found = golden.check(tmp_path / "x", other, X)
    assert found.kind == "DIFFERENT"
    assert ", by more than rounding can explain; out" in found.reason
