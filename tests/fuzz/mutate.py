"""Damage files in the ways that disks, transfers, editors and attackers do; the same seed gives the same bytes."""

import gzip
import io
import re
import zipfile
from random import Random

NUMBERS = [
    b"", b"0", b"-1", b"1e308", b"-1e308", b"1e-320", b"nan", b"inf", b"-inf", b"1e999", b"9" * 26,
    b"18446744073709551615", b"-9223372036854775809", b"2147483648", b"0x10", b"1_000", b"1,5", b"50%", b"None",
    b"[]", b"null", b"true", b"{}", b'"', b"'", "é½".encode(), "\u0663".encode(), b"\x00", b"9" * 5000,
]  # fmt: skip


def mutated(content: bytes, name: str, other: bytes, random: Random) -> bytes:
    """One to three mutations of a file; packed formats are often damaged inside, under a valid checksum."""
    for _ in range(random.choice((1, 1, 2, 3))):
        if name.endswith(".gz") and random.random() < 0.7:
            content = _inside_gz(content, other, random)
        elif name.endswith((".npz", ".zip")) and random.random() < 0.7:
            content = _inside_zip(content, other, random)
        else:
            content = random.choice(MUTATIONS)(content, other, random)
    return content


def _inside_gz(content: bytes, other: bytes, random: Random) -> bytes:
    try:
        inner = gzip.decompress(content)
    except Exception:  # whatever an earlier mutation did to it
        return _flipped(content, other, random)
    return gzip.compress(random.choice(MUTATIONS)(inner, other, random), 1, mtime=0)


def _inside_zip(content: bytes, other: bytes, random: Random) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # whatever an earlier mutation did to it
        return _flipped(content, other, random)
    if members:
        name = random.choice(sorted(members))
        members[name] = random.choice(MUTATIONS)(members[name], other, random)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)
    return packed.getvalue()


def _flipped(content: bytes, other: bytes, random: Random) -> bytes:
    result = bytearray(content)
    for _ in range(random.randint(1, 8) if result else 0):
        result[random.randrange(len(result))] ^= 1 << random.randrange(8)
    return bytes(result)


def _flipped_at_the_ends(content: bytes, other: bytes, random: Random) -> bytes:
    """Headers and directories are at the start or the end."""
    result = bytearray(content)
    for _ in range(random.randint(1, 4) if result else 0):
        place = min(random.randrange(200), len(result) - 1)
        result[place if random.random() < 0.5 else -1 - place] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(result)


def _truncated(content: bytes, other: bytes, random: Random) -> bytes:
    return content[: random.randint(0, len(content))]


def _inserted(content: bytes, other: bytes, random: Random) -> bytes:
    start = random.randint(0, len(content))
    return content[:start] + random.randbytes(random.choice((1, 2, 16, 300))) + content[start:]


def _cut(content: bytes, other: bytes, random: Random) -> bytes:
    start = random.randint(0, len(content))
    return content[:start] + content[start + random.choice((1, 2, 16, 300)) :]


def _repeated(content: bytes, other: bytes, random: Random) -> bytes:
    start = random.randint(0, len(content))
    part = content[start : start + random.choice((1, 8, 200))]
    return content[:start] + part * random.choice((2, 3, 1000)) + content[start:]


def _spliced(content: bytes, other: bytes, random: Random) -> bytes:
    return content[: random.randint(0, len(content))] + other[random.randint(0, len(other)) :]


def _other_header(content: bytes, other: bytes, random: Random) -> bytes:
    return other.partition(b"\n")[0] + b"\n" + content.partition(b"\n")[2]


def _other_number(content: bytes, other: bytes, random: Random) -> bytes:
    matches = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", content))
    if not matches:
        return _flipped(content, other, random)
    for match in sorted(
        random.sample(matches, min(len(matches), random.choice((1, 1, 3)))), key=lambda one: -one.start()
    ):
        content = content[: match.start()] + random.choice(NUMBERS) + content[match.end() :]
    return content


def _huge_number(content: bytes, other: bytes, random: Random) -> bytes:
    """A number of the same length: a shape in a header stays where it is."""
    matches = list(re.finditer(rb"[0-9]+", content[:400])) or list(re.finditer(rb"[0-9]+", content))
    if not matches:
        return _flipped(content, other, random)
    match = random.choice(matches)
    number = b"9" * len(match[0]) if random.random() < 0.5 else b"9" * random.randint(1, 20)
    return content[: match.start()] + number + content[match.end() :]


def _other_cell(content: bytes, other: bytes, random: Random) -> bytes:
    cells = list(re.finditer(rb"[^,;\t\n|]+", content))
    if not cells:
        return _flipped(content, other, random)
    match = random.choice(cells)
    return (
        content[: match.start()]
        + random.choice((random.choice(NUMBERS), random.choice(cells)[0]))
        + content[match.end() :]
    )


MUTATIONS = (
    _flipped, _flipped_at_the_ends, _truncated, _inserted, _cut, _repeated, _spliced, _other_header, _other_number,
    _huge_number, _other_cell,
)  # fmt: skip
