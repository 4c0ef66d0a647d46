package penstock.isolation;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/** Rows that no expression of a later step is moved into: what is not among them is not evaluated. */
public final class Fence {
    private Fence() {}

    public static Dataset<Row> around(Dataset<Row> rows) {
        var made = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        return made.sparkSession().internalCreateDataFrame(made.queryExecution().toRdd(), made.schema(), false);
    }
}
