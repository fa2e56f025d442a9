"""What show_config tells, and what it leaves alone."""

import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import calipers
from calipers._core.jit import cache_folder
from calipers._kernels.closeness import first_mismatch


def test_it_prints_what_it_returns(capsys, monkeypatch, tmp_path):
    # Where no other process adds kernels between the two.
    monkeypatch.setattr("calipers._cli.installation.cache_folder", lambda kernels: str(tmp_path))
    assert calipers.show_config() is None
    text = capsys.readouterr().out
    found = calipers.show_config(mode="dicts")
    assert f"numba {numba.__version__}" in text
    for value in found.values():
        words = value.values() if isinstance(value, dict) else [value]
        assert all(word in text for word in words)


def test_it_has_the_digest_of_the_sources_as_the_names_of_cached_files(monkeypatch):
    sources = calipers.show_config(mode="dicts")["sources"]
    assert re.fullmatch("[0-9a-f]{8}", sources)
    folder = cache_folder(first_mismatch)
    if folder is not None:
        assert calipers.allclose([1.0], [1.0])
        assert list(Path(folder).glob(f"closeness.first_mismatch-*-{sources}-*.nbc"))


def test_many_versions_take_more_than_a_line(capsys, monkeypatch):
    many = {f"a-package-of-some-{k}": f"{k}.0" for k in range(12)}
    monkeypatch.setattr("calipers._core.environment.versions", lambda: many)
    calipers.show_config()
    lines = capsys.readouterr().out.splitlines()
    told = lines[: next(k for k, line in enumerate(lines) if line.startswith("cpu"))]
    assert len(told) > 1
    assert max(map(len, told)) <= 80
    assert all(any(f"{name} {version}" in line for line in told) for name, version in many.items())


def test_the_number_of_threads_is_the_one_in_force():
    with calipers.num_threads(3):
        assert calipers.show_config(mode="dicts")["threads"].startswith("3,")


def test_a_cache_that_is_off_is_told(monkeypatch):
    assert "__pycache__" in calipers.show_config(mode="dicts")["cache"]
    monkeypatch.setenv("CALIPERS_CACHE", "0")
    assert calipers.show_config(mode="dicts")["cache"].startswith("none")


def test_a_kernel_that_is_replaced_meanwhile(monkeypatch, tmp_path):
    monkeypatch.setattr("calipers._cli.installation.cache_folder", lambda kernels: str(tmp_path))
    (tmp_path / "one.nbc").write_bytes(b"x" * 2**20)
    (tmp_path / "gone.nbc").symlink_to(tmp_path / "nowhere")
    assert "1 kernel, 1 MiB" in calipers.show_config(mode="dicts")["cache"]


def test_the_driver_is_asked_only_on_request():
    code = "import sys, calipers; calipers.show_config(); assert 'numba.cuda' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_devices_or_why_there_are_none():
    found = calipers.show_config(mode="dicts", devices=True)["cuda"]
    text = found if isinstance(found, str) else " ".join(found)
    assert "not installed" in text or "no device: " in text or "compute capability" in text


def test_a_mode_that_is_not_known():
    with pytest.raises(ValueError, match='mode must be "stdout" or "dicts", got 3'):
        calipers.show_config(3)
