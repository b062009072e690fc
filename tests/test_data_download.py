"""Downloads against a server on this machine that truncates, corrupts, redirects, stalls and resumes."""

import hashlib
import re
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from confrank.data.download import download, fetch
from confrank.data.published import PUBLISHED, Published, PublishedFile

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content`; `server.faults` says, request by request, what goes wrong."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.close_connection = True
        self.server.ranges.append(self.headers.get("Range"))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.path == "/page" or fault == "page":
            return self.answer(200, b"<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html"})
        if fault == "moved":
            return self.answer(302, b"", {"Location": "/page"})
        if fault == "page in disguise":
            return self.answer(200, b"\n <HTML><body>Quota exceeded</body>", {})
        if fault.isdigit():
            return self.answer(int(fault), b"no", {})
        return self.serve(fault)

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def serve(self, fault):
        content = self.server.content
        content = content[:-1] + b"!" if fault == "corrupt" else content[:1000] if fault == "short" else content
        asked, validator = self.headers.get("Range"), self.headers.get("If-Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and fault != "no ranges" else 0
        if validator and validator != self.server.etag:
            start = 0
        if start >= len(content):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        self.send_response(206 if start else 200)
        if start:
            shown = start + 1 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", self.server.etag)
        self.end_headers()
        if fault in ("break", "stall"):
            self.wfile.write(content[start : start + 300_000])
            self.wfile.flush()
            if fault == "stall":
                self.server.released.wait(10)
            return None
        self.wfile.write(content[start:])
        return None


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.faults, server.ranges, server.etag, server.released = [], [], '"one"', threading.Event()
        server.content = CONTENT
        server.url = f"http://127.0.0.1:{server.server_port}/set.tar.gz"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def get(server, folder, md5=MD5, **options):
    return download(server.url, folder / "set.tar.gz", md5, **{"pause": 0.01, "timeout": 5.0} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_download_is_verified_and_reports_its_progress(server, tmp_path):
    seen = []
    digest = get(server, tmp_path, on_progress=lambda received, total: seen.append((received, total)))
    assert digest == f"md5:{MD5}"
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT
    assert names(tmp_path) == ["set.tar.gz"]
    assert seen[0] == (0, 1_000_000)
    assert seen[-1] == (1_000_000, 1_000_000)
    assert seen == sorted(seen)
    assert get(server, tmp_path, md5=None) == f"sha256:{SHA256}"


def test_broken_connections_are_resumed(server, tmp_path):
    server.faults, notes = ["break", "break", "503", "break"], []
    get(server, tmp_path, attempts=3, on_note=notes.append)
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=600000-", "bytes=900000-"]
    assert len(notes) == 4
    assert notes[0] == "the connection ended after 300,000 of 1,000,000 bytes; trying again in 0.01 s"
    assert notes[2] == "the server answered 503 Service Unavailable; trying again in 0.02 s"


def test_stalls_end_an_attempt(server, tmp_path):
    server.faults, notes = ["stall"], []
    get(server, tmp_path, timeout=0.3, on_note=notes.append)
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT
    assert notes == ["the server stalled after 300,000 bytes; trying again in 0.01 s"]


def test_a_later_process_resumes_where_one_stopped(server, tmp_path):
    part = tmp_path / "set.tar.gz.part"
    part.write_bytes(CONTENT[:123_456])
    get(server, tmp_path)
    assert server.ranges == ["bytes=123456-"]
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT
    part.write_bytes(CONTENT)  # stopped between the last byte and the new name
    get(server, tmp_path)
    assert server.ranges[1:] == ["bytes=1000000-"]
    assert names(tmp_path) == ["set.tar.gz"]


@pytest.mark.parametrize("rest", [b"of another file", CONTENT + b"longer"])
def test_a_part_of_something_else_is_dropped(server, tmp_path, rest):
    (tmp_path / "set.tar.gz.part").write_bytes(rest)
    get(server, tmp_path)
    assert server.ranges[-1] is None
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT


def test_a_part_without_checksum_is_not_trusted(server, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(b"old")
    get(server, tmp_path, md5=None)
    assert server.ranges == [None]
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT


def test_servers_without_ranges_or_with_a_changed_file_start_over(server, tmp_path):
    server.faults = ["break", "no ranges"]
    get(server, tmp_path)
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT
    server.faults = ["break", "wrong range"]
    get(server, tmp_path)
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT

    def change(note):
        server.content, server.etag = CONTENT[::-1], '"two"'

    server.faults = ["break"]
    get(server, tmp_path, md5=None, on_note=change)
    assert (tmp_path / "set.tar.gz").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("fault", ["corrupt", "short"])
def test_a_wrong_file_gets_both_checksums_and_replaces_nothing(server, tmp_path, fault):
    (tmp_path / "set.tar.gz").write_bytes(b"older")
    wrong = CONTENT[:-1] + b"!" if fault == "corrupt" else CONTENT[:1000]
    server.faults = [fault]
    message = f"expected md5 {MD5} for set.tar.gz .* but got {hashlib.md5(wrong).hexdigest()} .{len(wrong):,} bytes"
    with pytest.raises(ValueError, match=message):
        get(server, tmp_path)
    assert names(tmp_path) == ["set.tar.gz"]
    assert (tmp_path / "set.tar.gz").read_bytes() == b"older"


@pytest.mark.parametrize("fault", ["page", "moved", "page in disguise"])
@pytest.mark.parametrize("md5", [MD5, None])
def test_a_web_page_is_no_archive(server, tmp_path, fault, md5):
    server.faults = [fault]
    with pytest.raises(ValueError, match="a data file from .* but got a web page.* manually and put it into"):
        get(server, tmp_path, md5=md5)
    assert names(tmp_path) == []


def test_a_web_page_does_not_cost_the_part(server, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT[:5000])
    server.faults = ["moved"]
    with pytest.raises(ValueError, match=r"got a web page \(http.*/page\)"):
        get(server, tmp_path)
    assert (tmp_path / "set.tar.gz.part").read_bytes() == CONTENT[:5000]


def test_giving_up(server, tmp_path):
    server.faults = ["500"] * 3
    with pytest.raises(OSError, match=r"the server answered 500 .* \(3 attempts in a row\)"):
        get(server, tmp_path, attempts=3)
    assert len(server.ranges) == 3
    server.faults = ["404"]
    with pytest.raises(OSError, match="expected a file at http.*, but the server answered 404"):
        get(server, tmp_path, attempts=3)
    assert len(server.ranges) == 4
    assert names(tmp_path) == []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(OSError, match="refused"):
            download(address, tmp_path / "x", attempts=2, pause=0.01)


def test_the_disk_is_not_the_network(server, tmp_path):
    def full(received, total):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        get(server, tmp_path, on_progress=full)
    assert len(server.ranges) == 1


def published(server, monkeypatch, md5):
    files = (PublishedFile("set.tar.gz", server.url, md5),)
    monkeypatch.setitem(PUBLISHED, "lsun", Published("a set", files, "LSUN_resize", test=(1,)))


def test_fetch_does_not_replace_intact_files(server, tmp_path, monkeypatch):
    published(server, monkeypatch, MD5)
    (first,) = fetch("lsun", tmp_path)
    assert (first.path, first.verified, first.downloaded) == (tmp_path / "lsun" / "set.tar.gz", True, True)
    (again,) = fetch("lsun", tmp_path)
    assert (again.downloaded, len(server.ranges)) == (False, 1)
    first.path.rename(tmp_path / "set.tar.gz")
    (beside,) = fetch("lsun", tmp_path)
    assert (beside.path, beside.downloaded) == (tmp_path / "set.tar.gz", False)
    beside.path.write_bytes(CONTENT[:-5])
    assert fetch("lsun", tmp_path)[0].downloaded


def test_fetch_on_the_command_line(server, tmp_path, monkeypatch, capsys, command):
    published(server, monkeypatch, None)
    for words in ("fetched ", "already downloaded: "):
        command("data", "fetch", "lsun", "--root", tmp_path)
        path = tmp_path / "lsun" / "set.tar.gz"
        line = f"{words}{path} (sha256:{SHA256}, not verified: the publisher provides no checksum)"
        assert line in capsys.readouterr().out
    published(server, monkeypatch, MD5[::-1])
    command("data", "fetch", "lsun", "--root", tmp_path, code=2)
    errors = capsys.readouterr().err
    assert f"expected md5 {MD5[::-1]}" in errors
    assert f"but got {MD5}" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], "expected NAME, but got none; see --help"),
        (["fetch", "digits"], "needs no files"),
        (["fetch", "mnist"], "expected a published data set among cifar10, .*but got 'mnist'"),
        (["check", "cifar10", "--root", "."], "run: confrank data fetch cifar10, with the same --root"),
        (["check", "nowhere"], "or the path of a folder, .npz, .csv, .tsv or .jsonl file, but got 'nowhere'"),
        (["list", "cifar10"], "expected no further argument, but got 'cifar10'; see --help"),
        (["grab", "cifar10"], "expected one of list, fetch, check, but got 'grab'"),
    ],
)
def test_mistakes_exit_with_2(tmp_path, monkeypatch, capsys, command, arguments, message):
    monkeypatch.chdir(tmp_path)
    command("data", *arguments, code=2)
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_list_and_check(tmp_path, capsys, command):
    command("data", "list", "--root", tmp_path)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("digits", *PUBLISHED))
    assert "73,257" in printed
    assert "embedded" in printed
    assert printed.count("not downloaded") == 6
    command("data", "check", "digits")
    assert "train: 900 images, 10 classes of 78 to 98\ntest: 897 images, 10 classes of" in capsys.readouterr().out


def test_check_compares_with_the_published_checksum(tmp_path, monkeypatch, capsys, command):
    Image.new("RGB", (32, 32)).save(tmp_path / "0.png")
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "0.png", "LSUN_resize/0.png")
    actual = hashlib.md5((tmp_path / "set.tar.gz").read_bytes()).hexdigest()
    for md5, code in ((actual, 0), ("0" * 32, 2), (None, 0)):
        files = (PublishedFile("set.tar.gz", "http://127.0.0.1/", md5),)
        monkeypatch.setitem(PUBLISHED, "lsun", Published("a set", files, "LSUN_resize", test=(1,)))
        command("data", "check", "lsun", "--root", tmp_path, code=code)
        printed, errors = capsys.readouterr()
        assert "test: 1 images, without labels" in printed
        assert ("as published" in printed) == (md5 == actual)
        assert (f"expected md5:{'0' * 32} for" in errors and actual in errors) == (code == 2)
    monkeypatch.setitem(PUBLISHED, "lsun", Published("a set", files, "LSUN_resize", test=(2,)))
    command("data", "check", "lsun", "--root", tmp_path, code=2)
    assert "expected 2 test images in lsun, but got 1" in capsys.readouterr().err
