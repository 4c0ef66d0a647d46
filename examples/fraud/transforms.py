"""The rules of the fraud example. Plain functions on DataFrames: a test can call them with ten rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

RULES = {
    "over_average": "amount > 5 * avg_transaction_amount",
    "high_risk": "risk_score > 0.8",
    "young_account": "account_age_days < 30 AND amount > 1000",
}
"""Name -> condition over a transaction and what is known of its customer."""


def judged(transactions: DataFrame, customers: DataFrame) -> DataFrame:
    """Each transaction with its customer's numbers and, in `rules`, the names of the rules that it breaks."""
    known = customers.select("customer_id", "risk_score", "account_age_days", "avg_transaction_amount")
    broken = [F.when(F.expr(condition), F.lit(name)) for name, condition in RULES.items()]
    return transactions.join(F.broadcast(known), "customer_id", "left").withColumn(
        "rules", F.array_compact(F.array(*broken))
    )
