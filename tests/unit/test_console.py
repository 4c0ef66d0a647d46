from penstock.cli.console import error_text
from penstock.errors import Terminal
from penstock.ledger.position import describe_position


def test_of_an_error_what_happened_is_red_and_what_to_do_is_not() -> None:
    shown = error_text(Terminal("it is gone", where="bronze.orders", hint="put it back"))
    assert shown.plain == "error: bronze.orders: it is gone\n  -> put it back"
    red = [shown.plain[span.start : span.end] for span in shown.spans if "red" in str(span.style)]
    assert red == ["error: bronze.orders: it is gone"]
    assert not shown.style


def test_an_error_without_a_way_on_has_one_line() -> None:
    assert error_text(Terminal("it is gone")).plain == "error: it is gone"


def test_a_table_is_named_once_in_what_failed_of_it() -> None:
    assert error_text(Terminal("no broker"), "failed", "bronze.orders").plain == "failed bronze.orders: no broker"
    named = Terminal("it is gone", where="bronze.orders")
    assert error_text(named, "failed", "bronze.orders").plain == "failed bronze.orders: it is gone"


def test_a_position_in_a_table_is_said_as_a_version_and_one_in_kafka_as_it_is() -> None:
    place = '{"sourceVersion":1,"reservoirId":"a","reservoirVersion":7,"index":-1,"isStartingVersion":%s}'
    assert describe_position(place % "false") == "version 7"
    assert describe_position(place % "true") == "the table as of version 7"
    assert describe_position('{"orders":{"0":12}}') == '{"orders":{"0":12}}'
