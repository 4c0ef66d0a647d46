from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.project_file import HEAD, check, load, one, place, problems, table


def names(*tables: str) -> str:
    return HEAD + "tables:\n" + "".join(f"  {name}: {{from: {{kafka: t}}}}\n" for name in tables)


@pytest.mark.parametrize("name", ["orders", "bronze.orders", "a.b.c", "Bronze.Orders_2-x"])
def test_a_table_has_a_name_of_plain_parts(name: str, tmp_path: Path) -> None:
    assert load(tmp_path, names(name))


@pytest.mark.parametrize("name", ["1a", "a..b", ".a", "a.", "a b", "a/b", "_penstock", "ä", "'..'", "a.1", "a.*"])
def test_a_name_that_could_leave_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, names(name)))
    assert place(problem) == (5, 3)
    assert "cannot name a table" in problem.message


def test_the_name_of_a_quarantine_is_reserved(tmp_path: Path) -> None:
    assert "__quarantine" in one(problems(tmp_path, names("a.b__Quarantine"))).message


def test_names_that_differ_only_in_capitals_are_refused(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, names("bronze.orders", "bronze.Orders")))
    assert place(problem) == (6, 3)


@pytest.mark.parametrize("pair", [("bronze", "bronze.orders"), ("a.b.c", "A.b"), ("a.b.c.d", "a")])
def test_a_table_cannot_lie_in_the_folder_of_another(pair: tuple[str, str], tmp_path: Path) -> None:
    assert "would lie in the folder" in one(problems(tmp_path, names(*pair))).message


def test_a_project_has_tables(tmp_path: Path) -> None:
    assert "there are no tables" in one(problems(tmp_path, HEAD + "tables: {}\n")).message


def test_a_table_without_a_definition_says_what_to_write(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, HEAD + "tables:\n  bronze.orders:\n"))
    assert place(problem) == (5, 3)
    assert "{from: {kafka: topic}}" in (problem.hint or "")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("{valeu: x}", "did you mean 'value'"),
        ("{value: 'a b'}", "Delta refuses ' '"),
        ("{value: 'a=b'}", "Delta refuses '='"),
        ("{value: ''}", "empty"),
        ("{value: TOPIC}", "two columns"),
        ("{value: a, key: A}", "two columns"),
        ("{value: _commit_version}", "keeps for itself"),
        ("{value: [a]}", "needs a value"),
        ("value", "needs a mapping"),
    ],
)
def test_a_column_gets_a_name_that_delta_takes(columns: str, said: str, tmp_path: Path) -> None:
    assert said in str(one(problems(tmp_path, table(f"from: {{kafka: t}}\ncolumns: {columns}"))))


def test_two_columns_may_swap_their_names(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: t}\ncolumns: {key: value, value: key}"))
    assert project.tables["bronze.orders"].columns == {"key": "value", "value": "key"}


def test_a_binary_payload_has_no_second_columns_to_rename(tmp_path: Path) -> None:
    text = table("from: {kafka: t}\npayload: binary\ncolumns: {value_binary: x}")
    assert "payload: binary has no column" in one(problems(tmp_path, text)).message
    assert load(tmp_path, table("from: {kafka: t}\npayload: binary\ncolumns: {value: value_binary}"))


def test_a_mistyped_payload_gets_the_one_that_was_meant(tmp_path: Path) -> None:
    assert one(problems(tmp_path, table("from: {kafka: t}\npayload: bytes_"))).hint


@pytest.mark.parametrize("trigger", ["30s", "available-now", "once", "{sla: 1h}", "0s", "5 minutes"])
def test_when_a_table_may_run(trigger: str, tmp_path: Path) -> None:
    assert load(tmp_path, table(f"from: {{kafka: t}}\ntrigger: {trigger}"))


@pytest.mark.parametrize(
    "trigger", ["30", "availablenow", "sometimes", "{sla: 0s}", "{every: 5s}", "[30s]", "{kind: once}"]
)
def test_what_is_not_a_trigger_says_what_is(trigger: str, tmp_path: Path) -> None:
    assert one(problems(tmp_path, table(f"from: {{kafka: t}}\ntrigger: {trigger}"))).hint


@pytest.mark.parametrize("trigger", ["continuous", "{continuous: 1s}", "Continuous"])
def test_continuous_is_refused_with_the_reason_and_another_way(trigger: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {{kafka: t}}\ntrigger: {trigger}")))
    assert "exactly once" in problem.message
    assert "1s" in (problem.hint or "")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("delta.enableInCommitTimestamps: false", "survive a copy"),
        ("delta.setTransactionRetentionDuration: interval 1 day", "double"),
        ("delta.columnMapping.mode: name", "cannot be set"),
        ("delta.feature.catalogManaged: supported", "cannot be set"),
        ("delta.apendOnly: true", "did you mean 'delta.appendOnly'"),
        ("delta.checkpointInterval: often", "number of commits"),
        ("delta.logRetentionDuration: interval 1 day", "too short"),
        ("penstock.x: 1", "reserved"),
    ],
)
def test_a_property_that_breaks_a_promise_is_refused(properties: str, said: str, tmp_path: Path) -> None:
    assert said in str(one(problems(tmp_path, table(f"from: {{kafka: t}}\nwrite: {{properties: {{{properties}}}}}"))))


@pytest.mark.parametrize(
    "definition",
    [
        "from: {kafka: t}\ndecode: {json: value, schema: 'id INT, s INT'}\n"
        "write: {merge: {keys: [id], sequence: s}, properties: {delta.appendOnly: true}}",
        "from: {table: silver.t}\naggregate: {keys: [id], metrics: {n: count(*)}}\n"
        "write: {properties: {delta.appendOnly: 'TRUE'}}",
    ],
    ids=["merge", "aggregate"],
)
def test_rows_of_an_append_only_table_are_not_replaced(definition: str, tmp_path: Path) -> None:
    found = [str(problem) for problem in problems(tmp_path, table(definition))]
    assert any("delta.appendOnly forbids" in problem for problem in found), found


def test_other_properties_are_taken(tmp_path: Path) -> None:
    text = table(
        "from: {kafka: t}\nwrite: {properties: {delta.appendOnly: true, owner: sales, delta.checkpointInterval: 50}}"
    )
    assert load(tmp_path, text).tables["bronze.orders"].write.properties["delta.appendOnly"] == "true"


@pytest.mark.parametrize(
    "lake", ["./lake", "/data/lake", "s3a://bucket/lake", "file:///data", "~/lake", "hdfs://n:8020/x"]
)
def test_a_lake_is_a_folder_or_a_uri(lake: str, tmp_path: Path) -> None:
    assert load(tmp_path, names("a").replace("./lake", lake))


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ("s3://bucket/lake", "s3a://"),
        ("s3a://", "names no place"),
        ("s3a://key:hush@bucket/x", "password"),
        ("' '", "empty"),
        ("file://data", "file:///"),
    ],
)
def test_a_lake_that_hadoop_does_not_read_is_refused(lake: str, said: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, names("a").replace("./lake", lake)))
    assert said in str(problem)
    assert "hush" not in str(problem)


@pytest.mark.parametrize(
    "master", ["local", "'local[4]'", "'local[*]'", "'local[2, 3]'", "yarn", "spark://h:7077", "k8s://https://h"]
)
def test_masters_of_spark(master: str, tmp_path: Path) -> None:
    assert load(tmp_path, names("a") + f"spark: {{master: {master}}}\n")


@pytest.mark.parametrize(
    ("spark", "said"),
    [
        ("{master: 'local[x]'}", "not a Spark master"),
        ("{conf: {spark.jars.packages: x}}", "pinned"),
        ("{conf: {spark.sql.extensions: x}}", "cannot be set"),
        ("{conf: {spark.scheduler.mode: FIFO}}", "cannot be set"),
        ("{conf: {spark.databricks.delta.write.txnAppId: x}}", "cannot be set"),
        ("{conf: {spark.databricks.delta.commitInfo.userMetadata: x}}", "ledger"),
        ("{conf: {spark.sql.streaming.checkpointLocation: x}}", "cannot be set"),
        ("{conf: {spark.databricks.delta.properties.defaults.columnMapping.mode: name}}", "cannot be set"),
        ("{conf: {spark.master: local}}", "own key"),
        ("{conf: {fs.s3a.endpoint: x}}", "write spark.hadoop.fs.s3a.endpoint"),
        ("{conf: {spark.x: [1]}}", "needs a value"),
        ("{conf: {spark.driver.extraJavaOptions: '${env:OPTS}'}}", "by reference"),
        ("{jars: nowhere.jar}", "not a list"),
        ("{jars: [nowhere.jar]}", "there is no file 'nowhere.jar'"),
    ],
)
def test_a_conf_that_would_break_a_promise_is_refused(spark: str, said: str, tmp_path: Path) -> None:
    assert said in str(one(problems(tmp_path, names("a") + f"spark: {spark}\n", OPTS="-Dx=y")))


def test_other_confs_are_taken_as_text(tmp_path: Path) -> None:
    of_a_column = "spark.hadoop.parquet.enable.dictionary#value"
    conf = f"{{spark.ui.enabled: true, spark.task.cpus: 2, {of_a_column}: true}}"
    project = load(tmp_path, names("a") + f"spark: {{conf: {conf}}}\n")
    assert project.spark.conf == {"spark.ui.enabled": "true", "spark.task.cpus": "2", of_a_column: "true"}


def test_the_provider_of_credentials_is_no_secret(tmp_path: Path) -> None:
    name = "spark.hadoop.fs.s3a.aws.credentials.provider"
    checked = check(tmp_path, names("a") + f"spark: {{conf: {{{name}: org.example.Provider}}}}\n")
    assert checked.project is not None
    assert checked.project.spark.conf == {name: "org.example.Provider"}
    assert checked.warnings == ()


def test_a_secret_that_is_written_out_is_hidden_and_warned_of(tmp_path: Path) -> None:
    checked = check(tmp_path, names("a") + "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hush}}\n")
    assert checked.project is not None
    assert "hush" not in repr(checked)
    assert place(checked.warnings[0]) == (6, 48)
