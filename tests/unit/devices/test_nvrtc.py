"""What the harness's own kernels were compiled to, kept from one process to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.devices import nvrtc
from harness.devices.nvrtc import KeptImages

KEY, OTHER = "ab" * 32, "cd" * 32


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    KeptImages(tmp_path).keep(KEY, b"image")
    assert KeptImages(tmp_path).held(KEY) == b"image"
    assert KeptImages(tmp_path).held(OTHER) is None


@pytest.mark.parametrize("damage", [lambda told: told[:-1], lambda told: told[:10], lambda _: b"", lambda t: t + b"\0"])
def test_a_file_that_is_not_what_was_written_counts_as_none(tmp_path: Path, damage: object) -> None:
    images = KeptImages(tmp_path)
    images.keep(KEY, b"image")
    (path,) = (tmp_path / "kernels").iterdir()
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert images.held(KEY) is None
    images.keep(KEY, b"image")
    assert images.held(KEY) == b"image"


def test_a_folder_that_can_not_be_written_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("a file where the folder is to be")
    images = KeptImages(tmp_path)
    images.keep(KEY, b"image")
    assert images.held(KEY) is None


@pytest.fixture
def images(tmp_path: Path) -> Iterator[KeptImages]:
    kept = KeptImages(tmp_path)
    nvrtc.keep_images(kept)
    yield kept
    nvrtc.keep_images(None)


@pytest.mark.gpu
def test_a_text_is_compiled_once_for_all_processes(images: KeptImages, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    text = 'extern "C" __global__ void put(int *at) { *at = NUMBER; }' + f"  // {os.urandom(8).hex()}"
    at = torch.zeros((), dtype=torch.int32, device="cuda")

    def put(number: int) -> int | None:
        # As in another process: without what this one remembers.
        loaded = nvrtc.load.__wrapped__(text, ("put",), 0, (f"NUMBER={number}",))
        if loaded is None:
            return None
        loaded[0]((1, 1, 1), 1, [nvrtc.pointer(at)])
        return int(at)

    assert put(7) == 7
    (path,) = (images._folder).iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(nvrtc, "_compiled", lambda *_: pytest.fail("compiled again"))
        at.zero_()
        assert put(7) == 7
    assert put(8) == 8, "other definitions are another image"
    # An image that no driver takes is replaced by one that it does.
    images.keep(path.stem, b"no machine code")
    assert put(7) == 7
    assert images.held(path.stem) != b"no machine code"
