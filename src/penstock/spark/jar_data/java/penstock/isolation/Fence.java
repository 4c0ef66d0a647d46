package penstock.isolation;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/**
 * Rows into whose plan Spark moves no expression of a later step, so that it is evaluated on these rows only. Called by
 * spark/expressions.py.
 */
public final class Fence {
    private Fence() {}

    public static Dataset<Row> around(Dataset<Row> rows) {
        var fenced = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        return fenced.sparkSession().internalCreateDataFrame(fenced.queryExecution().toRdd(), fenced.schema(), false);
    }
}
