"""Files are written completely or not at all."""

import os
import threading
from pathlib import Path

import pytest

from confrank.files import write_atomically


def test_a_link_stays_one_and_its_target_gets_the_content(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere" / "target.json")
    for content in ("first", b"second"):
        write_atomically(tmp_path / "link.json", content)
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "elsewhere" / "target.json").read_text() == "second"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["target.json"]


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    write_atomically(tmp_path / name, "content")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_to_itself_becomes_a_file(tmp_path):
    (tmp_path / "link").symlink_to("link")
    write_atomically(tmp_path / "link", "content")
    assert (tmp_path / "link").read_text() == "content"


def test_a_private_file_stays_private(tmp_path):
    (tmp_path / "policy.json").touch(mode=0o600)
    write_atomically(tmp_path / "policy.json", "new")
    assert (tmp_path / "policy.json").stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_atomically(tmp_path / "pipe", "through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert (tmp_path / "pipe").is_fifo()


def test_files_are_written_where_folders_cannot_be_opened(tmp_path, monkeypatch):
    original = os.open

    def as_on_windows(path, *arguments, **options):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", as_on_windows)
    write_atomically(tmp_path / "file.txt", "content")
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert (tmp_path / "file.txt").read_text() == "content"
