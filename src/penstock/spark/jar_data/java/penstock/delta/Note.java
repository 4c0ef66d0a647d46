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

/** Commits that change no row and only record something. Called by ledger/commit.py and maintenance/vacuum.py. */
public final class Note {
    private static final scala.collection.immutable.Map<String, String> NO_TAGS =
            scala.collection.immutable.Map$.MODULE$.empty();

    private Note() {}

    /**
     * Commits a note and a transaction number, unless the table has that number already; an empty append would do the
     * same, but has to be planned. Nothing is committed either if the application has committed something after
     * `readUpTo`, the version up to which the caller has read the log; a negative one is not checked.
     *
     * @return whether it committed
     */
    public static boolean marked(
            SparkSession spark, String path, String text, String application, long number, long readUpTo) {
        return within(spark, () -> {
            var log = DeltaLog.forTable(spark, path);
            var transaction = log.startTransaction(Option.empty(), Option.empty());
            long last = transaction.txnVersion(application);
            if (last >= number || (readUpTo >= 0 && isLater(log, transaction, application, last, readUpTo))) {
                return false;
            }
            commit(transaction, text, application, number);
            return true;
        });
    }

    /**
     * Commits a note with the next number of its application, provided that this application has committed nothing
     * after `readUpTo`: the version up to which the caller has read the log.
     *
     * @return whether it committed
     */
    public static boolean next(SparkSession spark, String path, String text, String application, long readUpTo) {
        return within(spark, () -> {
            var log = DeltaLog.forTable(spark, path);
            var transaction = log.startTransaction(Option.empty(), Option.empty());
            // read by the transaction: another commit of the application is a conflict
            long last = transaction.txnVersion(application);
            if (isLater(log, transaction, application, last, readUpTo)) {
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
            DeltaLog log, OptimisticTransaction transaction, String application, long last, long readUpTo) {
        return transaction.snapshot().version() != readUpTo && lastAt(log, application, readUpTo) != last;
    }

    private static long lastAt(DeltaLog log, String application, long version) {
        var snapshot = log.update(false, Option.empty(), Option.empty());
        if (snapshot.version() != version) {
            snapshot = log.getSnapshotAt(version, log.getSnapshotAt$default$2(), log.getSnapshotAt$default$3(), false);
        }
        return (Long) snapshot.transactions().getOrElse(application, () -> (Object) (-1L));
    }

    private static void commit(OptimisticTransaction transaction, String text, String application, long number) {
        Action setTransaction = new SetTransaction(application, number, Option.apply(System.currentTimeMillis()));
        var operation = new DeltaOperations.Write(
                SaveMode.Append, Option.empty(), Option.empty(), Option.apply(text), Option.empty(), Option.empty(),
                Option.empty(), Option.empty(), Option.empty());
        transaction.commit(CollectionConverters.asScala(List.of(setTransaction)).toSeq(), operation, NO_TAGS);
    }

    /**
     * Commits that files were deleted. Delta's own VACUUM makes two commits, whether they are wanted or not.
     *
     * @param numbers metrics for the table's history, by Delta's names
     * @return the version
     */
    @SuppressWarnings("unchecked")
    public static long vacuumed(SparkSession spark, String path, Map<String, Number> numbers) {
        return within(spark, () -> {
            var transaction = DeltaLog.forTable(spark, path).startTransaction(Option.empty(), Option.empty());
            var metrics = new HashMap<String, SQLMetric>();
            numbers.forEach((name, value) -> {
                var metric = SQLMetrics.createMetric(spark.sparkContext(), name);
                metric.set(value.longValue());
                metrics.put(name, metric);
            });
            transaction.registerSQLMetrics(
                    spark, scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
            var noActions = (scala.collection.immutable.Seq<Action>) (Object) scala.collection.immutable.Nil$.MODULE$;
            return transaction.commit(noActions, new DeltaOperations.VacuumEnd("COMPLETED"), NO_TAGS);
        });
    }

    /** Delta takes the settings of a commit from the active session. */
    private static <T> T within(SparkSession spark, Supplier<T> work) {
        var previous = SparkSession.getActiveSession();
        SparkSession.setActiveSession(spark);
        try {
            return work.get();
        } finally {
            if (previous.isDefined()) {
                SparkSession.setActiveSession(previous.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }
}
