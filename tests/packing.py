"""Bytes compressed in the formats that prediction files may have."""

import bz2
import gzip
import io
import lzma
import zipfile

import pyarrow as pa

PACKERS = {"gz": lambda content: gzip.compress(content, mtime=0), "bz2": bz2.compress, "xz": lzma.compress}


def packed(name, content):
    """The bytes packed as the ending of the name says."""
    ending = name.rpartition(".")[2]
    if ending == "zst":
        return pa.compress(content, codec="zstd", asbytes=True)
    if ending == "zip":
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for inner, held in (("inner.csv", content), ("__MACOSX/._inner.csv", b"as a Mac adds")):
                file.writestr(zipfile.ZipInfo(inner), held, zipfile.ZIP_DEFLATED)
        return archive.getvalue()
    return PACKERS[ending](content)
