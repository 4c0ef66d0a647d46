package penstock.delta;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Commits that change no row and say something. */
public final class Note {
    private static final scala.collection.immutable.Map<String, String> NO_TAGS =
            scala.collection.immutable.Map$.MODULE$.empty();

    private Note() {}

    /**
     * A commit with a note and Delta's own mark, unless the mark is there already; what an empty append would make,
     * without planning one.
     *
     * @return whether it was made
     */
    public static boolean marked(SparkSession spark, String path, String text, String application, long number) {
        return within(spark, () -> {
            var transaction = DeltaLog.forTable(spark, path).startTransaction(Option.empty(), Option.empty());
            if (transaction.txnVersion(application) >= number) {
                return false;
            }
            Action mark = new SetTransaction(application, number, Option.apply(System.currentTimeMillis()));
            var operation = new DeltaOperations.Write(
                    SaveMode.Append, Option.empty(), Option.empty(), Option.apply(text), Option.empty(), Option.empty(),
                    Option.empty(), Option.empty(), Option.empty());
            transaction.commit(CollectionConverters.asScala(List.of(mark)).toSeq(), operation, NO_TAGS);
            return true;
        });
    }

    /**
     * That files were deleted. Delta's own VACUUM makes two commits, without asking.
     *
     * @param told numbers for the table's history, by Delta's names
     * @return the version
     */
    @SuppressWarnings("unchecked")
    public static long vacuumed(SparkSession spark, String path, Map<String, Number> told) {
        return within(spark, () -> {
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
            return transaction.commit(nothing, new DeltaOperations.VacuumEnd("COMPLETED"), NO_TAGS);
        });
    }

    /** Delta takes what goes with a commit from the session that is active. */
    private static <T> T within(SparkSession spark, Supplier<T> work) {
        var active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(spark);
        try {
            return work.get();
        } finally {
            if (active.isDefined()) {
                SparkSession.setActiveSession(active.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }
}
