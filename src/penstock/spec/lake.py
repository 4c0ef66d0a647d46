"""Where the tables are: a folder, or a URI that Hadoop reads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.spec.base_model import quote_value, wrong

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HADOOP_SCHEMES = {"s3": "s3a", "s3n": "s3a", "wasb": "abfss", "wasbs": "abfss", "gcs": "gs"}


def lake_uri(value: Any) -> Any:
    """The lake as written, checked. Raises FindingsError."""
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise wrong("the lake is empty", "write lake: ./lake, or a URI such as s3a://bucket/lake")
    match = _SCHEME.fullmatch(value)
    if match is None:
        return value
    scheme, rest = match[1].lower(), match[2]
    if scheme in _HADOOP_SCHEMES:
        raise wrong(f"{quote_value(value)}: Hadoop does not read {scheme}://", f"write {_HADOOP_SCHEMES[scheme]}://...")
    if scheme == "file" and not rest.startswith("/"):
        raise wrong(f"{quote_value(value)} is not the URI of a folder", "write file:///path, or just the path")
    if not rest.strip("/"):
        raise wrong(f"{quote_value(value)} names no place", f"write {scheme}://bucket/folder")
    if ":" in (urlsplit(value).netloc.rpartition("@")[0]):
        raise wrong("the lake has a password in its URI", "give credentials by reference under spark: {conf: {...}}")
    return value


def is_remote(location: str) -> bool:
    """Whether a place in the lake, or of files, is a URI instead of a local path."""
    return "://" in location


def lake_place(lake: str, root: Path) -> str:
    """An absolute local path, or a URI without a slash at its end. A relative path begins at `root`."""
    if lake.startswith("file:"):
        lake = unquote(lake.removeprefix("file://").removeprefix("file:"))
    if is_remote(lake):
        return lake.rstrip("/")
    # Only the text is normalised, so that a symbolic link keeps its name.
    return os.path.normpath((root / Path(lake).expanduser()).absolute())
