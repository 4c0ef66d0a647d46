"""What Penstock chooses for the Spark session, and why. The user's `spark: {conf: ...}` takes precedence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.plan.model import Setting

_MAX_SNAPSHOT_PARTITIONS = 16
_MIN_CONSUMERS = 64
_CONSUMERS_PER_TABLE = 16
_FEW_TABLES = 8
_LATE_COMPILATION = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=10000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_MIN_CODE_CACHE = 200
_CODE_CACHE_PER_TABLE = 20
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
UNWRAP_CASTS = "org.apache.spark.sql.catalyst.optimizer.UnwrapCastInBinaryComparison"
_SECRETS = (
    r"(?i)secret|password|passphrase|token|access[.]?key|account[.]key|api[.]?key|credential|jaas|"
    r"keystore[.](key|certificate[.]chain)|truststore[.]certificates"
)


def session_settings(
    *,
    master: str,
    parallelism: int,
    local_lake: bool,
    tables: int,
    unique: Iterable[str],
    opaque: Iterable[str],
    memory: str | None,
    zone: str | None,
) -> tuple[Setting, ...]:
    """Session-wide choices. `parallelism` is the number of tasks that run at once, `unique` the columns whose values
    hardly repeat, `opaque` those that are never searched by their order, `memory` the driver memory that the user set,
    `zone` the user's time zone."""
    return (
        *_delta(parallelism),
        *_tasks(parallelism, tables),
        *_jvm(memory, tables),
        *(_local_files() if local_lake else ()),
        *(_one_process() if local_lake and master.startswith("local") else ()),
        *_files(unique, opaque),
        *_time_zone(zone),
        *_safety(),
        *(_loopback() if master.startswith("local") else ()),
    )


def _delta(parallelism: int) -> Iterator[Setting]:
    yield Setting("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension", "the tables are Delta's")
    yield Setting(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog", "the tables are Delta's"
    )
    yield Setting(
        "spark.databricks.delta.snapshotPartitions",
        str(min(parallelism, _MAX_SNAPSHOT_PARTITIONS)),
        "one per task that runs at once: Delta's default of 50 tiny tasks alone halves the speed",
    )
    yield Setting(
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration",
        "false",
        "a table that was stopped for longer than 7 days could not read its lookups and sources as they were; "
        "`penstock vacuum` keeps their files for it",
    )


def _tasks(parallelism: int, tables: int) -> Iterator[Setting]:
    yield Setting(
        "spark.sql.shuffle.partitions",
        str(parallelism),
        "one per task that runs at once: 200 tasks would cost seconds in every small batch",
    )
    yield Setting(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        str(parallelism),
        "listing files would start up to 10,000 tasks, even for a small table",
    )
    yield Setting("spark.scheduler.mode", "FAIR", "each table has its own pool, so that none waits for a large one")
    yield Setting(
        "spark.kafka.consumer.cache.capacity",
        str(max(_MIN_CONSUMERS, _CONSUMERS_PER_TABLE * tables)),
        "consumers are kept between batches; beyond the capacity each batch would reconnect",
    )
    yield Setting(
        "spark.sql.codegen.hugeMethodLimit",
        "8000",
        "a JVM never compiles a method of more bytes: wide tables would be computed by an interpreter",
    )
    yield Setting(
        "spark.sql.codegen.cache.maxEntries",
        str(max(_MIN_CODE_CACHE, _CODE_CACHE_PER_TABLE * tables)),
        "the code that Spark makes of a table's expressions is kept; beyond that each batch would recompile it",
    )


def _jvm(memory: str | None, tables: int) -> Iterator[Setting]:
    options = "-XX:+UseParallelGC -XX:MetaspaceSize=256m -XX:+ExitOnOutOfMemoryError"
    why = (
        "the default collector's threads compete with the tasks; loading Spark's classes alone would cause a "
        "collection of the whole heap"
    )
    if tables <= _FEW_TABLES:  # with many tables all code is hot, and the sooner it is compiled the better
        options += f" {_LATE_COMPILATION}"
        why += (
            "; two fifths of a young JVM's time go into compiling, so only code ten times as hot as by default is "
            "compiled to the end"
        )
    if memory is not None:
        yield Setting("spark.driver.extraJavaOptions", options, why)
        return
    yield Setting(
        "spark.driver.extraJavaOptions",
        f"{options} -Xms2g -Xmn1200m",
        f"{why}; room for the records of a batch: with less they outlive small collections, and then need large ones",
    )
    yield Setting("spark.driver.memory", "4g", "an upper limit: about 100 tables fit; a JVM takes what it uses")


def _local_files() -> Iterator[Setting]:
    yield Setting(
        "spark.hadoop.parquet.page.write-checksum.enabled",
        "false",
        "on a local disk every file has a checksum beside it, which is looked at whenever it is read",
    )
    yield Setting(
        "spark.delta.logStore.file.impl",
        "io.delta.storage.LocalLogStore",
        "a seventh of a small batch's time less than the default, and as safe: neither tells two processes apart, for "
        "which there is the commit lock",
    )
    yield Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
        "on a local disk the default starts a process for every file that it writes: half of a small batch's time. "
        "That this one's rename is not atomic between processes is no matter under the run lock",
    )


def _one_process() -> Iterator[Setting]:
    yield Setting(
        "spark.hadoop.fs.file.impl",
        "penstock.LocalFiles",
        "Hadoop's own starts `chmod` for every file and every checksum that it writes, eight times in a small batch: "
        "a seventh of its time",
    )


def _files(unique: Iterable[str], opaque: Iterable[str]) -> Iterator[Setting]:
    for column in unique:
        yield Setting(
            f"spark.hadoop.parquet.enable.dictionary#{column}",
            "false",
            "its values hardly repeat: a dictionary would be built and thrown away in every file",
        )
    for column in opaque:
        yield Setting(
            f"spark.hadoop.parquet.column.statistics.enabled#{column}",
            "false",
            "the first and the last of its values by order, which no search can use, cost a comparison at every value",
        )
    yield Setting(
        "spark.hadoop.parquet.size.statistics.enabled",
        "false",
        "histograms of the sizes of values, counted at every value, that no reader of these tables uses",
    )
    yield Setting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "the standard type, which every reader knows and which has statistics; INT96 has neither",
    )
    yield Setting(
        "spark.sql.parquet.compression.codec",
        "snappy",
        "fast: zstd halves the size of raw JSON but takes 1.7 times as long to write",
    )


def _time_zone(zone: str | None) -> Iterator[Setting]:
    yield Setting("spark.sql.session.timeZone", "UTC", "times mean the same on every machine")
    if zone is not None and zone.upper() not in ("UTC", "GMT", "Z", "ETC/UTC"):
        yield Setting(
            EXCLUDED_RULES,
            UNWRAP_CASTS,
            "Spark takes CAST(a TIMESTAMP AS TIMESTAMP_NTZ) in a comparison for reversible: in a zone with daylight "
            "saving, rows of the hour that comes twice would be lost",
        )


def _safety() -> Iterator[Setting]:
    yield Setting("spark.ui.enabled", "false", "Spark's pages listen on every address, without a password")
    yield Setting("spark.ui.killEnabled", "false", "if you turn the pages on, they cannot kill a batch")
    yield Setting("spark.ui.showConsoleProgress", "false", "its progress bars would run through the output")
    yield Setting("spark.redaction.regex", _SECRETS, "Spark's own misses keys in PEM, credentials and JAAS in its logs")


def _loopback() -> Iterator[Setting]:
    yield Setting(
        "spark.executor.killOnFatalError.depth",
        "0",
        "a regular expression that goes too deep in one record would end the process of all tables; "
        "without memory the JVM ends by itself",
    )
    why = "driver and executor are one process: no other machine needs to reach it"
    yield Setting("spark.driver.host", "127.0.0.1", why)
    yield Setting("spark.driver.bindAddress", "127.0.0.1", why)
