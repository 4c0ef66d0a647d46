"""Testing a table of a project: rows in, rows out, without a broker.

    from penstock.testing import table_under_test

    def test_an_order_without_an_amount_goes_to_quarantine():
        with table_under_test("shop", "silver.orders") as orders:
            outcome = orders.run([{"value": {"order_id": 1, "amount": 5}}, {"value": {"order_id": 2}}])
        assert [row["order_id"] for row in outcome.written] == [1]
        assert [row["error_detail"] for row in outcome.quarantined] == ["has_amount"]

The real processor of the table runs, with real Delta tables in a folder that is removed afterwards.
"""

from __future__ import annotations

from penstock.testing.table_under_test import Outcome, TableUnderTest, table_under_test

__all__ = ["Outcome", "TableUnderTest", "table_under_test"]
