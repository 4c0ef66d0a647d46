"""Small whole files in the lake (checkpoints, pins, the Delta log; never data): on a local disk, through Hadoop, or
on an object store."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from penstock.errors import PenstockError, SetupError, Transient, UsageError, import_extra
from penstock.plan.model import Plan
from penstock.plan.sources import VersionsSource
from penstock.spark.jvm import hadoop_conf, jvm_of

if TYPE_CHECKING:
    pass

# Small whole files in the lake: checkpoints, pins, the Delta log. Never data.
#
# Two ways to the same thing: a local lake is read directly, so commands without a JVM and the chain check in every
# batch cost microseconds; every other URI goes through Hadoop's file systems in the session's JVM.


@dataclass(frozen=True)
class StoredFile:
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Size:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.files + other.files, self.bytes + other.bytes)


def size_of(store: Store, folder: str) -> Size:
    """Of a folder with all that is in it."""
    found = store.listing(folder).values()
    return Size(len(found), sum(one.size for one in found))


class Store(Protocol):
    def read(self, path: str) -> str | None:
        """The file's text, or None if there is no such file."""

    def names(self, path: str) -> list[str]:
        """The names in a folder, [] if there is no such folder."""

    def write(self, path: str, text: str) -> None:
        """The whole file at once, folders made as needed; a reader sees the old text or the new."""

    def move(self, source: str, target: str) -> None:
        """A folder under a new name; the target does not exist."""

    def delete(self, path: str) -> None:
        """A file or a whole folder; nothing happens if it is not there."""

    def delete_empty(self, path: str) -> None:
        """A folder; nothing happens if it is not there, or if there is anything in it."""

    def listing(self, path: str) -> dict[str, StoredFile]:
        """Every file in a folder and below, by its name from there on; {} if there is none."""


class LocalStore:
    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)  # noqa: PTH208 - names only, and in every batch
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, path: str, text: str) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
        # Hadoop's checksum file of the text that was there before would make the new text unreadable for Spark.
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)

    def delete(self, path: str) -> None:
        target = Path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def delete_empty(self, path: str) -> None:
        with suppress(OSError):
            Path(path).rmdir()

    def listing(self, path: str) -> dict[str, StoredFile]:
        found: dict[str, StoredFile] = {}
        for folder, _, names in os.walk(path):
            for name in names:
                file = Path(folder) / name
                with suppress(FileNotFoundError):  # gone since its folder was read
                    about = file.stat()
                    found[str(file.relative_to(path))] = StoredFile(about.st_size, about.st_mtime_ns // 1_000_000)
        return found


class HadoopStore:
    """Any URI that the session's Hadoop configuration can open."""

    def __init__(self, spark: Any) -> None:
        self._jvm = jvm_of(spark)
        self._conf = hadoop_conf(spark)

    def _open(self, path: str) -> tuple[Any, Any]:
        location = self._jvm.org.apache.hadoop.fs.Path(path)
        return location.getFileSystem(self._conf), location

    def read(self, path: str) -> str | None:
        files, location = self._open(path)
        if not files.exists(location):
            return None
        stream = files.open(location)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        files, location = self._open(path)
        if not files.exists(location):
            return []
        return [status.getPath().getName() for status in files.listStatus(location)]

    def write(self, path: str, text: str) -> None:
        files, location = self._open(path)
        stream = files.create(location, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        files, location = self._open(source)
        destination = self._jvm.org.apache.hadoop.fs.Path(target)
        files.mkdirs(destination.getParent())
        if not files.rename(location, destination):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        files, location = self._open(path)
        files.delete(location, True)

    def delete_empty(self, path: str) -> None:
        from py4j.protocol import Py4JJavaError

        files, location = self._open(path)
        with suppress(Py4JJavaError):  # of a folder with something in it
            files.delete(location, False)

    def listing(self, path: str) -> dict[str, StoredFile]:
        files, location = self._open(path)
        if not files.exists(location):
            return {}
        base = len(str(files.makeQualified(location).toString())) + 1
        found: dict[str, StoredFile] = {}
        listed = files.listFiles(location, True)
        while listed.hasNext():
            status = listed.next()
            about = StoredFile(int(status.getLen()), int(status.getModificationTime()))
            found[str(status.getPath().toString())[base:]] = about
        return found


# The lake's small files on S3, Google Cloud Storage and Azure, without a JVM.
#
# Credentials come from where those clouds' own tools look: AWS_ACCESS_KEY_ID and the like, AWS_ENDPOINT_URL for a
# store that only speaks S3, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY … or the machine's role.


T = TypeVar("T")
_S3, _GCS, _AZURE = ("s3", "s3a", "s3n"), ("gs",), ("abfs", "abfss", "wasb", "wasbs", "az")
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

    def listing(self, path: str) -> dict[str, StoredFile]:
        bucket, key = self._open(path)
        return {
            one["path"][len(key) + 1 :]: StoredFile(int(one["size"]), int(one["last_modified"].timestamp() * 1000))
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
    purpose = "reading a lake on an object store without a JVM"
    import_extra("obstore.store", "object-stores", purpose)
    return import_extra("obstore", "object-stores", purpose)


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


# The lake's store for commands that start no JVM.


def open_store(lake: Plan | str) -> Store:
    """For a plan, or for the lake's address itself. Raises SetupError if it needs a package that is missing."""
    address = lake.lake if isinstance(lake, Plan) else lake
    if "://" not in address:
        return LocalStore()

    return ObjectStore(address)


def store_of(source: VersionsSource, lake: Store) -> Store:
    """Where a Delta table lies that is read: in the lake, or elsewhere."""
    return lake if source.table is not None else open_store(source.uri)
