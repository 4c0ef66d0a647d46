"""The lake's small files on S3, Google Cloud Storage and Azure, without a JVM.

Credentials come from where those clouds' own tools look: AWS_ACCESS_KEY_ID and the like, AWS_ENDPOINT_URL for a store
that only speaks S3, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY … or the machine's role.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from penstock.engine.store import Listed
from penstock.errors import PenstockError, SetupError, Transient, UsageError

T = TypeVar("T")
_S3, _GCS, _AZURE = ("s3", "s3a", "s3n"), ("gs",), ("abfs", "abfss", "wasb", "wasbs", "az")
INSTALL = "pip install 'penstock[object-stores]'"
_PATIENCE: dict[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
"""A command that a person waits for: the library's own default is to try for three minutes."""


class ObjectStore:
    """A Store over every bucket that a path names; one client per bucket."""

    def __init__(self, lake: str) -> None:
        _require_readable(lake)
        self._obstore = _library()
        self._buckets: dict[str, Any] = {}

    def read(self, path: str) -> str | None:
        bucket, key = self._open(path)
        try:
            found = self._ask(path, lambda: bytes(self._obstore.get(bucket, key).bytes()))
        except _Missing:
            return None
        return found.decode("utf-8", errors="replace")

    def names(self, path: str) -> list[str]:
        bucket, key = self._open(path)
        try:
            found = self._ask(path, lambda: self._obstore.list_with_delimiter(bucket, f"{key}/"))
        except _Missing:
            return []
        keys = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return [one.rstrip("/").rpartition("/")[2] for one in keys]

    def write(self, path: str, text: str) -> None:
        bucket, key = self._open(path)
        self._ask(path, lambda: self._obstore.put(bucket, key, text.encode()))

    def move(self, source: str, target: str) -> None:
        """Object by object in the order of their names: object stores have no folders to rename."""
        bucket, key = self._open(source)
        _, new = self._open(target)
        for one in self._below(source, bucket, key):
            self._ask(source, lambda one=one: self._obstore.rename(bucket, one, new + one[len(key) :]))  # type: ignore[misc]

    def delete(self, path: str) -> None:
        bucket, key = self._open(path)
        for one in [*self._below(path, bucket, key), key]:
            try:
                self._ask(path, lambda one=one: self._obstore.delete(bucket, one))  # type: ignore[misc]
            except _Missing:
                continue

    def delete_empty(self, path: str) -> None:
        """Object stores have no folders."""

    def listing(self, path: str) -> dict[str, Listed]:
        bucket, key = self._open(path)
        return {
            one["path"][len(key) + 1 :]: Listed(int(one["size"]), int(one["last_modified"].timestamp() * 1000))
            for one in self._listed(path, bucket, key)
        }

    def _below(self, path: str, bucket: Any, key: str) -> list[str]:
        return sorted(one["path"] for one in self._listed(path, bucket, key))

    def _listed(self, path: str, bucket: Any, key: str) -> list[Any]:
        pages = self._ask(path, lambda: list(self._obstore.list(bucket, f"{key}/")))
        return [one for page in pages for one in page]

    def _open(self, path: str) -> tuple[Any, str]:
        parts = urlsplit(path)
        address = f"{parts.scheme}://{parts.netloc}"
        if address not in self._buckets:
            self._buckets[address] = _bucket(parts.scheme, address)
        return self._buckets[address], path[len(address) :].strip("/")

    def _ask(self, path: str, question: Callable[[], T]) -> T:
        errors = self._obstore.exceptions
        try:
            return question()
        except (errors.NotFoundError, FileNotFoundError):
            raise _Missing(path) from None
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise SetupError(
                f"the store refused to open {path}: {_first_line(error)}",
                hint="give credentials by the usual variables (AWS_ACCESS_KEY_ID …, GOOGLE_APPLICATION_CREDENTIALS, "
                "AZURE_STORAGE_ACCOUNT_KEY …)",
            ) from None
        except errors.BaseError as error:
            raise Transient(
                f"{path} could not be read: {_first_line(error)}",
                hint="is the store reachable, and is the address (AWS_ENDPOINT_URL, AWS_REGION) right?",
            ) from None


class _Missing(PenstockError):
    pass


def _library() -> Any:
    try:
        importlib.import_module("obstore.store")
        return importlib.import_module("obstore")
    except ImportError:
        raise SetupError(
            "a lake on an object store needs the package obstore to be read without a JVM", hint=f"run: {INSTALL}"
        ) from None


def storage_options(uri: str) -> dict[str, str]:
    """For `deltalake`, which reads the rows: what the environment says and it would not take from there by itself."""
    if "://" not in uri:
        return {}
    found = {"max_retries": str(_PATIENCE["max_retries"]), "retry_timeout": f"{_PATIENCE['retry_timeout'].seconds}s"}
    if urlsplit(uri).scheme in _S3:
        found |= {f"AWS_{name.upper()}": value for name, value in _s3_settings().items()}
    return found


def _s3_settings() -> dict[str, str]:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    found = {"endpoint": endpoint} if endpoint else {}
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        found["region"] = "us-east-1"
    if endpoint and endpoint.startswith("http://"):
        found["allow_http"] = "true"
    return found


def _bucket(scheme: str, address: str) -> Any:
    stores = _library().store
    if scheme in _S3:
        settings = _s3_settings()
        client: dict[str, Any] = {"allow_http": settings.pop("allow_http", "") == "true", "timeout": "20s"}
        bucket = f"s3{address[len(scheme) :]}"
        return stores.S3Store.from_url(bucket, config=settings, client_options=client, retry_config=_PATIENCE)
    if scheme in _GCS:
        return stores.GCSStore.from_url(address, retry_config=_PATIENCE)
    return stores.AzureStore.from_url(address, retry_config=_PATIENCE)


def _require_readable(lake: str) -> None:
    """Before the package is asked for: it would not help."""
    if urlsplit(lake).scheme not in (*_S3, *_GCS, *_AZURE):
        raise UsageError(
            f"a lake at {lake} can only be read by Spark: this command starts no JVM",
            hint="it reads local folders, s3a://, gs:// and abfss://",
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
