package penstock.delta;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A commit that changes nothing and says what was done. Delta's own VACUUM makes two of them, without asking. */
public final class Note {
    private Note() {}

    /**
     * @param told numbers for the table's history, by Delta's names
     * @return the version
     */
    @SuppressWarnings("unchecked")
    public static long vacuumed(SparkSession spark, String path, Map<String, Number> told) {
        var active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(spark);
        try {
            var transaction = DeltaLog.forTable(spark, path).startTransaction(Option.empty(), Option.empty());
            var metrics = new HashMap<String, SQLMetric>();
            told.forEach((name, value) -> {
                var metric = SQLMetrics.createMetric(spark.sparkContext(), name);
                metric.set(value.longValue());
                metrics.put(name, metric);
            });
            transaction.registerSQLMetrics(
                    spark, scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
            var nothing = (scala.collection.immutable.Seq<Action>) (Object) scala.collection.immutable.Nil$.MODULE$;
            return transaction.commit(
                    nothing,
                    new DeltaOperations.VacuumEnd("COMPLETED"),
                    scala.collection.immutable.Map$.MODULE$.<String, String>empty());
        } finally {
            if (active.isDefined()) {
                SparkSession.setActiveSession(active.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }
}
