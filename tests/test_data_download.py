"""Downloads by pooch from a server on this machine that truncates, corrupts, redirects, stalls and refuses."""

import gc
import hashlib
import io
import os
import re
import resource
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from confrank.data.published import ATTEMPTS, PUBLISHED, Published, PublishedFile, fetch
from confrank.report.progress import download_bar

# pooch leaves the response of a failed request to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves `CONTENT`; `server.faults` says, request by request, what goes wrong."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.server.requests += 1
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.path == "/page":
            return self.answer(200, b"<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html"})
        if fault == "moved":
            return self.answer(302, b"", {"Location": "/page"})
        if fault == "page in disguise":
            return self.answer(200, b"\n <HTML><body>Quota exceeded</body>", {})
        if fault.isdigit():
            return self.answer(int(fault), b"no", {})
        if fault == "corrupt":
            return self.answer(200, CONTENT[:-1] + b"!", {})
        sent = CONTENT[:300_000] if fault in ("break", "stall") else CONTENT
        self.answer(200, sent, {"Content-Length": str(len(CONTENT))})
        if fault == "stall":
            self.wfile.flush()
            self.server.released.wait(10)
        return None

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    gc.freeze()  # what is there already need not be searched for those responses
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time", type("Clock", (), {"sleep": lambda seconds: None}))  # between attempts
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.faults, server.requests, server.released = [], 0, threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}/set.tar.gz"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()
    gc.collect()
    gc.unfreeze()


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def get(monkeypatch, tmp_path, capsys, command):
    """`confrank data fetch lsun`, with the file at this address; what it prints, or the one line of its error."""

    def get(url, md5=MD5, *, code=0, root=tmp_path):
        files = (PublishedFile("set.tar.gz", url, md5),)
        monkeypatch.setitem(PUBLISHED, "lsun", Published("a set", files, "LSUN_resize", test=(1,)))
        command("data", "fetch", "lsun", "--root", root, code=code)
        printed, errors = capsys.readouterr()
        assert errors.count("\n") == (code != 0), errors
        return errors if code else printed

    return get


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lsun"


def test_a_download_is_verified_and_not_repeated(server, get, tmp_path, folder):
    path = folder / "set.tar.gz"
    assert get(server.url) == f"fetched {path} (md5:{MD5}, as published)\n"
    assert path.read_bytes() == CONTENT and names(folder) == ["set.tar.gz"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask  # others may share the folder
    assert get(server.url) == f"already downloaded: {path} (md5:{MD5}, as published)\n"
    path.rename(tmp_path / "set.tar.gz")
    assert f"already downloaded: {tmp_path / 'set.tar.gz'} " in get(server.url)
    assert server.requests == 1
    (tmp_path / "set.tar.gz").write_bytes(CONTENT[:-5])
    assert get(server.url).startswith("fetched ")


def test_without_a_published_checksum_the_digest_is_shown(server, get, folder):
    shown = f"{folder / 'set.tar.gz'} (sha256:{SHA256}, not verified: the publisher provides no checksum)\n"
    assert get(server.url, None) == f"fetched {shown}"
    assert get(server.url, None) == f"already downloaded: {shown}"
    assert server.requests == 1


def test_dropped_connections_and_busy_servers_are_tried_again(server, get, folder, monkeypatch):
    monkeypatch.setattr("pooch.downloaders.DEFAULT_TIMEOUT", 0.3)
    server.faults = ["break", "503", "stall"]
    lines = get(server.url).splitlines()
    assert (folder / "set.tar.gz").read_bytes() == CONTENT
    assert (
        lines[0].startswith("set.tar.gz: IncompleteRead (") and "300000 bytes read, 700000 more expected" in lines[0]
    )
    assert lines[1] == "set.tar.gz: 503 Service Unavailable; trying again"
    assert lines[2] == "set.tar.gz: TimeoutError (timed out); trying again"
    assert len(lines) == 4 and server.requests == ATTEMPTS == 4


def test_a_wrong_checksum_names_both_and_replaces_nothing(server, get, folder):
    folder.mkdir()
    (folder / "set.tar.gz").write_bytes(b"older")
    server.faults = ["corrupt"] * ATTEMPTS
    wrong = hashlib.md5(CONTENT[:-1] + b"!").hexdigest()
    assert f"expected md5 {MD5} for set.tar.gz from {server.url}, but got {wrong}; it was" in get(server.url, code=2)
    assert (folder / "set.tar.gz").read_bytes() == b"older" and names(folder) == ["set.tar.gz"]
    server.faults = ["corrupt"]
    assert get(server.url).startswith("fetched ")


@pytest.mark.parametrize("fault", ["moved", "page in disguise"])
@pytest.mark.parametrize("md5", [MD5, None])
def test_a_web_page_is_no_archive(server, get, folder, fault, md5):
    server.faults = [fault]
    error = get(server.url, md5, code=2)
    assert f"expected a data file from {server.url}, but got a web page; the publisher may have moved it" in error
    assert f"download it manually and put it into {folder} as set.tar.gz" in error
    assert names(folder) == [] and server.requests == 1 + (fault == "moved")


def test_giving_up(server, get, folder):
    server.faults = ["500"] * ATTEMPTS
    expected = (
        f"expected to download {server.url}, but got 500 Internal Server Error in each of 4 attempts; try again"
    )
    assert expected in get(server.url, code=2)
    assert server.requests == ATTEMPTS
    server.faults = ["404"]
    assert f"expected a file at {server.url}, but got 404 Not Found; the publisher may" in get(server.url, code=2)
    assert server.requests == ATTEMPTS + 1
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = get(f"http://127.0.0.1:{unused.getsockname()[1]}/x", code=2)
    assert "but got ConnectionRefusedError (Connection refused) in each of 4 attempts; try again later" in error
    assert "but got gaierror (" in get("http://nowhere.invalid/x", code=2)
    assert names(folder) == []


def test_a_full_disk_is_not_the_network(server, get, folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        error = get(server.url, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error == (
        f"confrank: error: expected to be able to read or write {folder}, but got: File too large; fix that or choose"
        " another path\n"
    )
    assert names(folder) == [] and server.requests == 1


def test_folders_that_cannot_be_written(server, get, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file/deeper"):
        assert f"expected a folder, but {root}/lsun is a file or inside one" in get(server.url, code=2, root=root)

    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied")  # a real one does not stop the superuser

    for there in (False, True):
        if there:
            (tmp_path / "closed/lsun").mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr("pooch.utils.tempfile.NamedTemporaryFile" if there else "pooch.utils.os.makedirs", denied)
            error = get(server.url, code=2, root=tmp_path / "closed")
        assert f"able to read or write {tmp_path}/closed/lsun, but got: Permission denied; fix that or" in error
    assert server.requests == 0


def test_the_bar_starts_anew_with_each_attempt(server, tmp_path, monkeypatch):
    files = (PublishedFile("set.tar.gz", server.url, MD5),)
    monkeypatch.setitem(PUBLISHED, "lsun", Published("a set", files, "LSUN_resize", test=(1,)))
    server.faults, seen = ["break"], []
    with download_bar(Console(force_terminal=True, file=io.StringIO())) as bar:

        def noted(name):
            made = bar(name)
            (task,) = made._progress.tasks
            update = made._progress.update
            monkeypatch.setattr(
                made._progress, "update", lambda *a, **k: (update(*a, **k), seen.append((task.completed, task.total)))
            )
            return made

        fetch("lsun", tmp_path, bar=noted)
    received = [done for done, _ in seen]
    assert received == [262_144, 262_144, 524_288, 786_432, 1_000_000, 1_000_000]
    assert {total for _, total in seen} == {1_000_000}


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
