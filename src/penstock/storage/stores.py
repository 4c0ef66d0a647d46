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
from penstock.spec.lake import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A local lake is read directly, so that commands without a JVM and the chain check in every batch cost microseconds;
# every other URI goes through Hadoop's file systems in the session's JVM, or without one through the object store.


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
    """The size of a folder with everything in it."""
    files = store.listing(folder).values()
    return Size(len(files), sum(file.size for file in files))


class Store(Protocol):
    def read(self, path: str) -> str | None:
        """The file's text, or None if there is no such file."""

    def names(self, path: str) -> list[str]:
        """The names in a folder, [] if there is no such folder."""

    def write(self, path: str, text: str) -> None:
        """The whole file at once, folders created as needed; a reader sees the old text or the new."""

    def move(self, source: str, target: str) -> None:
        """Renames a folder; the target does not exist."""

    def delete(self, path: str) -> None:
        """Deletes a file or a whole folder; does nothing if it does not exist."""

    def delete_empty(self, path: str) -> None:
        """Deletes a folder; does nothing if it does not exist or is not empty."""

    def listing(self, path: str) -> dict[str, StoredFile]:
        """Every file in a folder and below, by its path relative to the folder; {} if there is none."""


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
        # Hadoop's checksum file of the previous text would make the new text unreadable for Spark.
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
        files: dict[str, StoredFile] = {}
        for folder, _, names in os.walk(path):
            for name in names:
                file = Path(folder) / name
                with suppress(FileNotFoundError):  # removed since its folder was read
                    status = file.stat()
                    files[str(file.relative_to(path))] = StoredFile(status.st_size, status.st_mtime_ns // 1_000_000)
        return files


class HadoopStore:
    """Any URI that the session's Hadoop configuration can open."""

    def __init__(self, spark: Any) -> None:
        self._jvm = jvm_of(spark)
        self._conf = hadoop_conf(spark)

    def _open(self, path: str) -> tuple[Any, Any]:
        location = self._jvm.org.apache.hadoop.fs.Path(path)
        return location.getFileSystem(self._conf), location

    def read(self, path: str) -> str | None:
        filesystem, location = self._open(path)
        if not filesystem.exists(location):
            return None
        stream = filesystem.open(location)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        filesystem, location = self._open(path)
        if not filesystem.exists(location):
            return []
        return [status.getPath().getName() for status in filesystem.listStatus(location)]

    def write(self, path: str, text: str) -> None:
        filesystem, location = self._open(path)
        stream = filesystem.create(location, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        filesystem, location = self._open(source)
        destination = self._jvm.org.apache.hadoop.fs.Path(target)
        filesystem.mkdirs(destination.getParent())
        if not filesystem.rename(location, destination):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        filesystem, location = self._open(path)
        filesystem.delete(location, True)

    def delete_empty(self, path: str) -> None:
        from py4j.protocol import Py4JJavaError

        filesystem, location = self._open(path)
        with suppress(Py4JJavaError):  # of a folder that is not empty
            filesystem.delete(location, False)

    def listing(self, path: str) -> dict[str, StoredFile]:
        filesystem, location = self._open(path)
        if not filesystem.exists(location):
            return {}
        base = len(str(filesystem.makeQualified(location).toString())) + 1
        files: dict[str, StoredFile] = {}
        iterator = filesystem.listFiles(location, True)
        while iterator.hasNext():
            status = iterator.next()
            file = StoredFile(int(status.getLen()), int(status.getModificationTime()))
            files[str(status.getPath().toString())[base:]] = file
        return files


# The lake's small files on S3, Google Cloud Storage and Azure, without a JVM.
#
# Credentials come from where those clouds' own tools look: AWS_ACCESS_KEY_ID and the like, AWS_ENDPOINT_URL for a store
# that only speaks S3, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY … or the machine's role.


T = TypeVar("T")
_S3, _GCS, _AZURE = ("s3", "s3a", "s3n"), ("gs",), ("abfs", "abfss", "wasb", "wasbs", "az")
_RETRIES: dict[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
"""For commands that a person waits for: the library by default retries for three minutes."""


class ObjectStore:
    """A Store over every bucket that a path names; one client per bucket."""

    def __init__(self, lake: str) -> None:
        _require_readable(lake)
        self._obstore = _library()
        self._buckets: dict[str, Any] = {}

    def read(self, path: str) -> str | None:
        bucket, key = self._open(path)
        try:
            content = self._call(path, lambda: bytes(self._obstore.get(bucket, key).bytes()))
        except _Missing:
            return None
        return content.decode("utf-8", errors="replace")

    def names(self, path: str) -> list[str]:
        bucket, key = self._open(path)
        try:
            listing = self._call(path, lambda: self._obstore.list_with_delimiter(bucket, f"{key}/"))
        except _Missing:
            return []
        keys = [*listing["common_prefixes"], *(item["path"] for item in listing["objects"])]
        return [child.rstrip("/").rpartition("/")[2] for child in keys]

    def write(self, path: str, text: str) -> None:
        bucket, key = self._open(path)
        self._call(path, lambda: self._obstore.put(bucket, key, text.encode()))

    def move(self, source: str, target: str) -> None:
        """Object by object in the order of their names: object stores cannot rename folders."""
        bucket, key = self._open(source)
        _, new = self._open(target)
        for old in self._keys_below(source, bucket, key):
            self._call(source, lambda old=old: self._obstore.rename(bucket, old, new + old[len(key) :]))  # type: ignore[misc]

    def delete(self, path: str) -> None:
        bucket, key = self._open(path)
        for object_key in [*self._keys_below(path, bucket, key), key]:
            try:
                self._call(path, lambda object_key=object_key: self._obstore.delete(bucket, object_key))  # type: ignore[misc]
            except _Missing:
                continue

    def delete_empty(self, path: str) -> None:
        """Object stores have no folders."""

    def listing(self, path: str) -> dict[str, StoredFile]:
        bucket, key = self._open(path)
        return {
            item["path"][len(key) + 1 :]: StoredFile(int(item["size"]), int(item["last_modified"].timestamp() * 1000))
            for item in self._objects_below(path, bucket, key)
        }

    def _keys_below(self, path: str, bucket: Any, key: str) -> list[str]:
        return sorted(item["path"] for item in self._objects_below(path, bucket, key))

    def _objects_below(self, path: str, bucket: Any, key: str) -> list[Any]:
        pages = self._call(path, lambda: list(self._obstore.list(bucket, f"{key}/")))
        return [item for page in pages for item in page]

    def _open(self, path: str) -> tuple[Any, str]:
        parts = urlsplit(path)
        address = f"{parts.scheme}://{parts.netloc}"
        if address not in self._buckets:
            self._buckets[address] = _open_bucket(parts.scheme, address)
        return self._buckets[address], path[len(address) :].strip("/")

    def _call(self, path: str, request: Callable[[], T]) -> T:
        errors = self._obstore.exceptions
        try:
            return request()
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
    """Options for `deltalake`, which reads the rows: settings of the environment that it would not pick up by
    itself."""
    if not is_remote(uri):
        return {}
    options = {"max_retries": str(_RETRIES["max_retries"]), "retry_timeout": f"{_RETRIES['retry_timeout'].seconds}s"}
    if urlsplit(uri).scheme in _S3:
        options |= {f"AWS_{name.upper()}": value for name, value in _s3_settings().items()}
    return options


def _s3_settings() -> dict[str, str]:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    settings = {"endpoint": endpoint} if endpoint else {}
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        settings["region"] = "us-east-1"
    if endpoint and endpoint.startswith("http://"):
        settings["allow_http"] = "true"
    return settings


def _open_bucket(scheme: str, address: str) -> Any:
    stores = _library().store
    if scheme in _S3:
        settings = _s3_settings()
        client: dict[str, Any] = {"allow_http": settings.pop("allow_http", "") == "true", "timeout": "20s"}
        bucket = f"s3{address[len(scheme) :]}"
        return stores.S3Store.from_url(bucket, config=settings, client_options=client, retry_config=_RETRIES)
    if scheme in _GCS:
        return stores.GCSStore.from_url(address, retry_config=_RETRIES)
    return stores.AzureStore.from_url(address, retry_config=_RETRIES)


def _require_readable(lake: str) -> None:
    """Called before the package is imported, which would not help."""
    if urlsplit(lake).scheme not in (*_S3, *_GCS, *_AZURE):
        raise UsageError(
            f"a lake at {lake} can only be read by Spark: this command starts no JVM",
            hint="it reads local folders, s3a://, gs:// and abfss://",
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def open_store(lake: Plan | str, spark: SparkSession | None = None) -> Store:
    """The store of a plan, or of a table's or lake's address; `spark` is missing in commands that start no JVM. Raises
    SetupError if it needs a package that is missing."""
    address = lake.lake if isinstance(lake, Plan) else lake
    if not is_remote(address):
        return LocalStore()
    return ObjectStore(address) if spark is None else HadoopStore(spark)


def source_store(source: VersionsSource, lake: Store) -> Store:
    """The store of a Delta table that is read: the lake's, or another."""
    return lake if source.table is not None else open_store(source.uri)
