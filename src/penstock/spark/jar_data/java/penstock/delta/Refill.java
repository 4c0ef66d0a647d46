package penstock.delta;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper$;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Replaces all rows of a table in one commit, like an overwrite, for ledger/write_target.py. But the files are written
 * first and the commit is made later, so that other work can be done in between, and a compaction meanwhile does not
 * matter: the commit removes the files that the table has when it is made.
 */
public final class Refill {
    private final SparkSession spark;
    private final DeltaLog log;
    private final OptimisticTransaction writing;
    private final List<Action> come = new ArrayList<>(); // the files written so far
    private Metadata metadata;

    private Refill(SparkSession spark, DeltaLog log) {
        this.spark = spark;
        this.log = log;
        writing = log.startTransaction(Option.empty(), Option.empty());
        metadata = null;
    }

    public static Refill begin(SparkSession spark, String path) {
        SparkSession.setActiveSession(spark);
        return new Refill(spark, DeltaLog.forTable(spark, path));
    }

    /** The columns of the table, as JSON. */
    public String schema() {
        return writing.metadata().schema().json();
    }

    /** A property of the table, or null. */
    public String property(String name) {
        return writing.metadata().configuration().get(name).getOrElse(() -> null);
    }

    /** Sets the columns that the table will have, as JSON; to be called before the first write. */
    public void columns(String schema) {
        var columns = (StructType) StructType.fromJson(schema);
        metadata = withColumns(writing.metadata(), columns);
        writing.updateMetadataForTableOverwrite(metadata);
    }

    /** Writes rows into files that no reader sees before the commit. */
    public void write(Dataset<Row> rows) {
        come.addAll(CollectionConverters.asJava(writing.writeFiles(rows)));
    }

    /** How many rows were written. */
    public long rows() {
        long sum = 0;
        for (var action : come) {
            if (action instanceof AddFile file) {
                sum += file.numLogicalRecords().getOrElse(() -> 0L);
            }
        }
        return sum;
    }

    /**
     * Whether, by Delta's record of transactions, the table has what the session is about to write, if that names it.
     */
    public boolean done() {
        return DMLWithDeletionVectorsHelper$.MODULE$.hasBeenExecuted(writing, spark, Option.empty());
    }

    /** Replaces all that the table holds now with what was written; returns the version. */
    public long commit() {
        SparkSession.setActiveSession(spark); // Delta takes the settings of a commit from the active session
        var transaction = log.startTransaction(Option.empty(), Option.empty());
        if (!transaction.metadata().id().equals(writing.snapshot().metadata().id())
                || !transaction.metadata().schemaString().equals(writing.snapshot().metadata().schemaString())) {
            throw new IllegalStateException(
                    "the table was made again, or its columns were changed, while it was refilled");
        }
        transaction.readWholeTable();
        if (metadata != null) {
            transaction.updateMetadataForTableOverwrite(withColumns(transaction.metadata(), metadata.schema()));
        }
        var actions = new ArrayList<Action>();
        var setTransaction = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (setTransaction.isDefined()) {
            actions.add(setTransaction.get());
        }
        long time = System.currentTimeMillis();
        for (var file : transaction.snapshot().allFiles().collectAsList()) {
            actions.add(file.removeWithTimestamp(time, true));
        }
        actions.addAll(come);
        var overwrite = new DeltaOperations.Write(
                SaveMode.Overwrite, Option.empty(), Option.empty(), Option.empty(), Option.empty(), Option.empty(),
                Option.empty(), Option.empty(), Option.empty());
        return transaction.commit(CollectionConverters.asScala(actions).toSeq(), overwrite,
                scala.collection.immutable.Map$.MODULE$.empty());
    }

    private static Metadata withColumns(Metadata metadata, StructType columns) {
        return new Metadata(
                metadata.id(), metadata.name(), metadata.description(), metadata.format(), columns.json(),
                metadata.partitionColumns(), metadata.configuration(), metadata.createdTime());
    }
}
