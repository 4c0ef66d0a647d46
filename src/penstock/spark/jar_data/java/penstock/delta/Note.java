package penstock.delta;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
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
     * without planning one. Not either if the application has committed something after a version, the one up to which
     * the caller has read the log; that is not looked at if it is negative.
     *
     * @return whether it was made
     */
    public static boolean marked(
            SparkSession spark, String path, String text, String application, long number, long seen) {
        return within(spark, () -> {
            var log = DeltaLog.forTable(spark, path);
            var transaction = log.startTransaction(Option.empty(), Option.empty());
            long last = transaction.txnVersion(application);
            if (last >= number || (seen >= 0 && isLater(log, transaction, application, last, seen))) {
                return false;
            }
            commit(transaction, text, application, number);
            return true;
        });
    }

    /**
     * A commit with a note and the next number of its application, provided that this application has committed nothing
     * after a version: the one up to which the caller has read the log.
     *
     * @return whether it was made
     */
    public static boolean next(SparkSession spark, String path, String text, String application, long seen) {
        return within(spark, () -> {
            var log = DeltaLog.forTable(spark, path);
            var transaction = log.startTransaction(Option.empty(), Option.empty());
            // read by the transaction: another commit of it is a conflict
            long last = transaction.txnVersion(application);
            if (isLater(log, transaction, application, last, seen)) {
                return false;
            }
            commit(transaction, text, application, last + 1);
            return true;
        });
    }

    /** The number of the last commit that an application has made up to a version; -1 if it has made none. */
    public static long last(SparkSession spark, String path, String application, long version) {
        return within(spark, () -> lastAt(DeltaLog.forTable(spark, path), application, version));
    }

    private static boolean isLater(
            DeltaLog log, OptimisticTransaction transaction, String application, long last, long seen) {
        return transaction.snapshot().version() != seen && lastAt(log, application, seen) != last;
    }

    private static long lastAt(DeltaLog log, String application, long version) {
        var snapshot = log.update(false, Option.empty(), Option.empty());
        if (snapshot.version() != version) {
            snapshot = log.getSnapshotAt(version, log.getSnapshotAt$default$2(), log.getSnapshotAt$default$3(), false);
        }
        return (Long) snapshot.transactions().getOrElse(application, () -> (Object) (-1L));
    }

    private static void commit(OptimisticTransaction transaction, String text, String application, long number) {
        Action mark = new SetTransaction(application, number, Option.apply(System.currentTimeMillis()));
        var operation = new DeltaOperations.Write(
                SaveMode.Append, Option.empty(), Option.empty(), Option.apply(text), Option.empty(), Option.empty(),
                Option.empty(), Option.empty(), Option.empty());
        transaction.commit(CollectionConverters.asScala(List.of(mark)).toSeq(), operation, NO_TAGS);
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
