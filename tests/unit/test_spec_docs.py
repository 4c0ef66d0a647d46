from __future__ import annotations

import re
from pathlib import Path

from tests.unit.project_file import HEAD, load

PAGE = (Path(__file__).parents[2] / "docs" / "project-file.md").read_text(encoding="utf-8")


def test_the_examples_in_the_docs_are_valid_together(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "jars").mkdir()
    for file in ("certs/ca.pem", "certs/client.pem", "certs/client.key", "jars/hadoop-aws.jar"):
        (tmp_path / file).touch()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "orders.ddl").write_text("order_id BIGINT")
    whole, *parts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    load(tmp_path, whole)
    head = HEAD.replace('kafka: {bootstrap: "127.0.0.1:9092"}\n', "")
    text = head + "\n".join(parts).replace("/run/secrets/kafka", "secret")
    project = load(tmp_path, text, KAFKA_USER="u", KEY_PASSWORD="p", S3_SECRET="s", FORGET_KEY="f" * 64)
    assert len(parts) == 6
    assert project.spark.jars == ("jars/hadoop-aws.jar",)
