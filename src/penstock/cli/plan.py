"""`penstock plan`: each table with its source and its paths, then every setting with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from penstock.cli.console import facts_view, print_json, print_view, size_text, visible
from penstock.cli.options import AsJson, Directory, Tables, load_plan
from penstock.plan.model import Setting
from penstock.plan.sources import NEW_FIELDS
from penstock.spec.quantity import counted, duration_text
from penstock.spec.stages import format_rules

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from penstock.plan.model import MaintenancePlan, Plan, StreamPlan, TablePlan, TriggerPlan
    from penstock.plan.stages import AggregatePlan, MergePlan, Stages, WritePlan


def maintenance_facts(plan: MaintenancePlan) -> list[tuple[str, str]]:
    """Empty if no maintenance is configured."""
    tasks: list[str] = []
    if plan.optimize_seconds is not None:
        tasks.append(
            f"optimize every {duration_text(plan.optimize_seconds)} to files of {size_text(plan.target_bytes)}"
        )
    if plan.vacuum_seconds is not None:
        retention = [
            f"{duration_text(plan.retain_ms / 1000)} kept" if plan.retain_ms is not None else "",
            f"replay window {duration_text(plan.replay_ms / 1000)}" if plan.replay_ms else "",
            *(
                f"{reader.name} up to {duration_text(reader.lag_ms / 1000)} behind {reader.table}"
                for reader in plan.external
            ),
        ]
        retention_text = ", ".join(filter(None, retention))
        tasks.append(
            f"vacuum every {duration_text(plan.vacuum_seconds)}" + (f" ({retention_text})" if retention_text else "")
        )
    return [("maintenance", "; ".join(tasks))] if tasks else []


_INDENT = 2


def plan_view(
    plan: Plan,
    only: Collection[str],
    drifts: Mapping[str, str] = MappingProxyType({}),
    inferred: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> RenderableType:
    """By table: `drifts` compares its definition with that in the lake, `inferred` lists its inferred columns."""
    tables = [table for table in plan.tables if not only or table.name in only]
    shared = _shared(tables)
    parts: list[RenderableType] = [_head(plan, tables)]
    for table in tables:
        table_settings = [setting for setting in table.settings if setting not in shared]
        parts += ["", _table(table, table_settings, drifts.get(table.name), inferred.get(table.name, ()))]
    if shared:
        parts += ["", _settings("Every table", shared)]
    secret_settings = [Setting(name, str(secret), "yours, by reference") for name, secret in plan.secret_conf.items()]
    return Group(*parts, "", _settings("The Spark session", [*plan.settings, *secret_settings]))


def _head(plan: Plan, tables: Sequence[TablePlan]) -> RenderableType:
    count = _tables(tables) if len(tables) == len(plan.tables) else f"{_tables(tables)} of {_tables(plan.tables)}"
    title = Text.assemble((plan.name, "bold"), f": {count}")
    facts = [
        ("lake", plan.lake + (" (a local folder: Penstock locks it)" if plan.local else "")),
        ("spark", f"{plan.master}, {plan.parallelism} tasks at once"),
        *maintenance_facts(plan.maintenance),
    ]
    return Group(title, facts_view(facts))


def _tables(tables: Sequence[TablePlan]) -> str:
    sinks = sum(table.sink is not None for table in tables)
    counts = (("table", len(tables) - sinks), ("sink", sinks))
    return " and ".join(counted(number, noun) for noun, number in counts if number)


def _table(table: TablePlan, settings: Sequence[Setting], drift: str | None, inferred: Sequence[str]) -> RenderableType:
    title = Text.assemble((table.name, "bold cyan"), "  ", (table.origin, "dim"))
    facts = [
        *table.source.describe(),
        *(("inferred" if index == 0 else "", visible(line)) for index, line in enumerate(inferred)),
        *(_stages(_stages_to_show(table), table.write) if table.stages else ()),
        *([("rejected", "rows go to its quarantine, with the reason")] if table.may_reject else []),
        *(_aggregate(table.aggregate) if table.aggregate else ()),
        *(_stream(table.stream) if table.stream else ()),
        *(table.sink.describe() if table.sink else ()),
        ("trigger", _trigger(table.trigger)),
        ("table" if table.sink is None else "ledger", table.uri),
        ("checkpoint", f"{table.checkpoints}/<generation>"),
        *([("columns", _columns(table))] if table.columns and not table.stages else []),
        ("definition", table.definition + (f", {drift}" if drift else "")),
    ]
    return Group(title, facts_view(facts), *([_settings(None, settings)] if settings else []))


def _stages_to_show(table: TablePlan) -> Stages:
    """The stages without a decode that the file format implies: the source's description says it already."""
    assert table.stages is not None
    by_line = table.files is not None and table.files.by_line
    return replace(table.stages, decode=None) if by_line else table.stages


def _stages(stages: Stages, write: WritePlan) -> Iterable[tuple[str, str]]:
    if decode := stages.decode:
        schema = decode.schema.columns().replace("`", "") if decode.schema else ""
        options = "".join(f", {name} {value}" for name, value in decode.options.items() if decode.format != "csv")
        yield "decode", f"{decode.format} in {decode.column}{options}: {schema}"
        if format_rules(decode.format).names_fields:
            yield "new fields", NEW_FIELDS[decode.new_fields]
    if transform := stages.transform:
        yield "transform", transform.sql or f"{transform.function} in {transform.file}"
    if stages.lookups:
        yield "lookups", ", ".join(f"{lookup.name}: {lookup.table or lookup.uri}" for lookup in stages.lookups)
    for expectation in stages.expect:
        yield "expect", f"{expectation.name}: {expectation.check} (else {expectation.action})"
    if stages.dedupe:
        bound = f" within {duration_text(stages.dedupe.within_ms / 1000)}" if stages.dedupe.within_ms else ""
        yield "dedupe", f"by {', '.join(stages.dedupe.keys)}{bound}"
    if stages.audit:
        author = f", by {stages.audit.who}" if stages.audit.who else ""
        yield "audit", f"a row per change of {', '.join(stages.audit.keys)}{author}, with what was before and after"
    layout = [f"schema {write.schema}"]
    layout += [f"partitioned by {', '.join(write.partition_by)}"] if write.partition_by else []
    layout += [f"clustered by {', '.join(write.cluster_by)}"] if write.cluster_by else []
    layout += ["keeps a change feed"] if write.change_feed else []
    yield "write", ", ".join(layout)
    if write.merge:
        yield from _merge(write.merge)


def _merge(merge: MergePlan) -> Iterable[tuple[str, str]]:
    rows = "one row per key" if merge.history == "scd1" else "a row per version: valid_from, valid_to, is_current"
    yield "merge", f"{merge.history} by {', '.join(merge.keys)}: {rows}"
    if merge.snapshot:
        yield "extracts", f"each file is one, taken at {merge.snapshot}: what it lacks is deleted"
        return
    yield "newest", f"by {merge.sequence}, then by its place in the source"
    if merge.deleted != "false":
        yield "deleted", f"when {merge.deleted}: a tombstone stays, so that a late change does not bring the row back"
    if merge.ignore_nulls:
        yield "nulls", "keep the value that is there"


def _aggregate(plan: AggregatePlan) -> Iterable[tuple[str, str]]:
    groups = [*plan.keys, *([f"windows over {plan.time}"] if plan.time else [])]
    yield "groups", ", ".join(groups)
    if plan.every_ms is not None and plan.size_ms is not None:
        every, size = duration_text(plan.every_ms / 1000), duration_text(plan.size_ms / 1000)
        yield "window", every if every == size else f"{size}, every {every}"
    yield "metrics", ", ".join(f"{name}: {expression}" for name, expression in plan.metrics.items())
    late = f", rows later than {duration_text(plan.watermark_ms / 1000)} are kept aside" if plan.watermark_ms else ""
    yield "emit", plan.emit + late


def _stream(stream: StreamPlan) -> Iterable[tuple[str, str]]:
    yield "stream", f"{stream.function}({', '.join(stream.inputs)}) in {stream.file}"
    for name, stream_input in list(stream.inputs.items())[1:]:
        where = f" where {stream_input.where}" if stream_input.where else ""
        yield name, f"{stream_input.label}{where}, starting {stream_input.describe_start()}"
    outputs = {
        "append": "rows are added once Spark says they are final",
        "complete": "rewrites the whole table in every batch",
    }
    yield "output", f"{stream.output}: {outputs[stream.output]}"
    yield "state", "Spark's, in the checkpoint: if that is lost, the table starts over from its sources"
    yield "", "it has as many partitions as spark.sql.shuffle.partitions says when the table begins, and keeps them"


def _trigger(trigger: TriggerPlan) -> Text:
    interval = f"every {duration_text(trigger.seconds)}" if trigger.seconds is not None else trigger.kind
    return Text.assemble(interval, (f"  {trigger.why}", "dim"))


def _columns(table: TablePlan) -> str:
    names = (name if name == canonical else f"{canonical} as {name}" for canonical, name in table.columns.items())
    return ", ".join(names) + f" (payload: {table.payload})"


def _settings(title: str | None, settings: Iterable[Setting]) -> RenderableType:
    parts: list[RenderableType] = [Text(title, style="bold")] if title else []
    return Group(*parts, *map(_Choice, settings))


@dataclass(frozen=True)
class _Choice:
    """Name and value, with the reason below them: the names are too long for columns side by side."""

    setting: Setting

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name, value = Text(self.setting.name), Text(self.setting.value, style="green", overflow="fold")
        fits = _INDENT + len(name) + 3 + len(value) <= options.max_width
        yield _indented(Text.assemble(name, (" = ", "dim"), value if fits else ""), _INDENT)
        if not fits:
            yield _indented(value, 2 * _INDENT)
        yield _indented(Text(self.setting.why, style="dim"), 3 * _INDENT)


def _indented(text: Text, columns: int) -> RenderableType:
    return Padding(text, (0, 0, 0, columns))


def _shared(tables: Sequence[TablePlan]) -> list[Setting]:
    """Settings that all tables share: they are shown once."""
    if len(tables) < 2:
        return []
    return [setting for setting in tables[0].settings if all(setting in table.settings for table in tables)]


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show what run will do: tables, sources, settings and why.

    It is worked out from the project file, and compared with the ledgers in the lake: whether a table is new, or its
    definition another than that of its last batch. Neither Spark nor a broker is needed, and nothing is changed.
    """
    from penstock.operations.history import inferred_schemas
    from penstock.operations.staleness import definition_drifts
    from penstock.plan.build import select_tables

    plan = load_plan(directory)
    table_plans = select_tables(plan, tables or [])
    drifts, inferred = definition_drifts(plan, table_plans), inferred_schemas(plan, table_plans)
    if as_json:
        from penstock.operations.checkpoints import drift_document
        from penstock.plan.build import plan_document

        document = plan_document(plan, tables or ())
        for table in document["tables"]:
            table["fit"] = drift_document(drifts[table["name"]])
            if table["name"] in inferred:
                table["inferred"] = inferred[table["name"]].document
        print_json(document)
    else:
        drift_texts = {name: drift.describe for name, drift in drifts.items()}
        inferred_lines = {name: schema.describe for name, schema in inferred.items()}
        print_view(plan_view(plan, tables or (), drift_texts, inferred_lines), piped=200)
