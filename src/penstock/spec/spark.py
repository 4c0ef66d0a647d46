"""The Spark session of a project: its master, extra jars, and confs on top of those that Penstock chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SecretStr

from penstock.spec.base_model import Finding, Referenced, SpecModel, quote_value, refuse, text_values, wrong
from penstock.spec.delta_properties import refusal as property_refusal

_MASTER = re.compile(
    r"local|local\[(\d+|\*)\s*(,\s*\d+\s*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s)://.+"
)
_NAME = re.compile(r"spark\.[A-Za-z0-9_.\-/$:*#]+")
_SENSITIVE = re.compile(r"secret|passw|passphrase|token|credential|access\.?key|account\.key|jaas", re.IGNORECASE)
_NOT_SECRET = re.compile(r"(provider|providers|mapping|mechanism|enabled|class|path|file|location)$", re.IGNORECASE)
_PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."

_JARS = (
    "the jars are pinned by their SHA-256",
    "write extra ones, such as a file system's, under spark: {jars: [path]}",
)
_ONE_PLACE = ("the ledger of every commit is kept there", "remove it")
_DELTA = ("the tables need Delta's own", "remove it")
_LOSS = ("rows would be lost in silence", "remove it")
_REFUSED: Mapping[str, tuple[str, str]] = {
    "spark.master": ("it has its own key", 'write spark: {master: "local[*]"}'),
    "spark.app.name": ("it is the name of the project", "write name: at the top"),
    "spark.jars*": _JARS,
    "spark.sql.extensions": _DELTA,
    "spark.sql.catalog.spark_catalog*": _DELTA,
    "spark.scheduler.mode": ("tables share the session fairly, each in its own pool", "remove it"),
    "spark.scheduler.allocation.file": ("tables share the session fairly, each in its own pool", "remove it"),
    "spark.databricks.delta.commitInfo.userMetadata": _ONE_PLACE,
    "spark.databricks.delta.write.txn*": ("it decides whether a batch is already in the table", "remove it"),
    "spark.databricks.delta.schema.autoMerge*": ("a schema never changes in silence", "remove it"),
    "spark.databricks.delta.retentionDurationCheck*": ("files that a reader still needs could be deleted", "remove it"),
    "spark.sql.streaming.checkpointLocation": ("each table has its checkpoint in the lake", "remove it"),
    "spark.sql.streaming.stopActiveRunOnRestart": ("a second query would stop the first in silence", "remove it"),
    "spark.sql.streaming.disabledV2MicroBatchReaders": ("positions are those of the V2 reader", "remove it"),
    "spark.sql.files.ignoreMissingFiles": _LOSS,
    "spark.sql.files.ignoreCorruptFiles": _LOSS,
    "spark.sql.caseSensitive": ("Delta does not tell column names apart by capitals", "remove it"),
    "spark.redaction.regex": ("it keeps secrets out of logs and pages", "remove it"),
}


def _master(value: Any) -> str:
    if isinstance(value, str) and _MASTER.fullmatch(value.strip()):
        return value.strip()
    hint = 'write "local[*]", "local[4]", spark://host:7077, yarn or k8s://https://host:443'
    raise wrong(f"{quote_value(value)} is not a Spark master", hint)


# These go on the command line of the JVM, where everybody on the machine can read them: nothing there is a secret.
_VISIBLE_CONFS = ("spark.driver.memory", "spark.driver.extraClassPath")
_VISIBLE_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def _conf(value: Any) -> dict[str, str | SecretStr]:
    """Values that came by reference, and those whose name says that they are secret, become SecretStr."""
    secrets = (
        {name: item for name, item in value.items() if isinstance(item, SecretStr)} if isinstance(value, dict) else {}
    )
    rest = {name: item for name, item in value.items() if name not in secrets} if secrets else value
    findings: list[Finding] = []
    conf: dict[str, str | SecretStr] = dict(secrets)
    for name, text in text_values(rest, "conf").items():
        if finding := _refusal(name, text):
            findings.append(finding)
        if name == _VISIBLE_JVM_OPTIONS and isinstance(text, Referenced):
            message = f"'{name}' cannot come by reference: it is put where everybody on the machine can read it"
            findings.append(Finding((name,), message, "write it out, without secrets"))
        is_secret = is_sensitive(name) or (isinstance(text, Referenced) and name not in _VISIBLE_CONFS)
        conf[name] = SecretStr(str(text)) if is_secret else str(text)
    findings += [finding for name in secrets if (finding := _refusal(name, ""))]
    refuse(findings)
    return conf


def is_sensitive(conf_name: str) -> bool:
    """Whether the value of this conf must be hidden although it is written in the file."""
    return _SENSITIVE.search(conf_name) is not None and _NOT_SECRET.search(conf_name) is None


def _refusal(name: str, text: str) -> Finding | None:
    if not _NAME.fullmatch(name):
        hint = f"write spark.hadoop.{name}" if name.startswith(("fs.", "hadoop.")) else "a conf begins with spark."
        return Finding((name,), f"'{name}' is not the name of a Spark conf", hint, at_key=True)
    for refused, (why, instead) in _REFUSED.items():
        if name == refused or (refused.endswith("*") and name.startswith(refused[:-1])):
            return Finding((name,), f"the conf '{name}' cannot be set: {why}", instead, at_key=True)
    if name.startswith(_PROPERTY_DEFAULTS):
        finding = property_refusal("delta." + name.removeprefix(_PROPERTY_DEFAULTS), text)
        return finding and Finding((name,), finding.message, finding.hint, at_key=True)
    return None


def _jars(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(isinstance(jar, str) and jar for jar in value):
        raise wrong(f"{quote_value(value)} is not a list of jars", "write jars: [jars/hadoop-aws.jar]")
    if bad_jar := next((jar for jar in value if "," in jar), None):
        raise wrong(f"{quote_value(bad_jar)}: the path of a jar cannot have a comma", "write one path per entry")
    return tuple(str(jar) for jar in value)


class Spark(SpecModel):
    """Paths of jars are relative to the project folder."""

    master: Annotated[str, BeforeValidator(_master)] = Field(default="local[*]", examples=['"local[*]"'])
    conf: Annotated[dict[str, str | SecretStr], BeforeValidator(_conf)] = Field(default={})
    jars: Annotated[tuple[str, ...], BeforeValidator(_jars)] = ()

    shape: ClassVar[str] = 'a mapping: {master: "local[*]", conf: {}}'
