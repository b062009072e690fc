"""Files that are either whole or absent."""

import os
import threading

from confrank.atomic import write_atomically


def test_a_link_stays_one_and_its_target_gets_the_content(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere" / "target.json")
    for content in ("first", b"second"):
        write_atomically(tmp_path / "link.json", content)
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "elsewhere" / "target.json").read_text() == "second"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["target.json"]


def test_a_pipe_is_written_to_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_atomically(tmp_path / "pipe", "through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert (tmp_path / "pipe").is_fifo()
