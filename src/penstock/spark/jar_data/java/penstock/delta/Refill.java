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
 * All rows of a table exchanged for others in one commit, like an overwrite; but the files are written first and the
 * commit is made later, so that what belongs before it can be done in between, and a compaction meanwhile does not
 * matter: what goes are the files of the table as it is when the commit is made.
 */
public final class Refill {
    private final SparkSession spark;
    private final DeltaLog log;
    private final OptimisticTransaction writing;
    private final List<Action> come = new ArrayList<>();
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

    /** The table shall have these columns from then on, given as JSON; before the first write. */
    public void columns(String schema) {
        var then = (StructType) StructType.fromJson(schema);
        metadata = withColumns(writing.metadata(), then);
        writing.updateMetadataForTableOverwrite(metadata);
    }

    /** Writes rows into files that nobody sees before the commit. */
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

    /** Whether Delta's own record says that what this session names is in the table; only where it names something. */
    public boolean done() {
        return DMLWithDeletionVectorsHelper$.MODULE$.hasBeenExecuted(writing, spark, Option.empty());
    }

    /** The version. What was written takes the place of all that the table holds now. */
    public long commit() {
        SparkSession.setActiveSession(spark); // Delta takes what goes with a commit from the session that is active
        var now = log.startTransaction(Option.empty(), Option.empty());
        if (!now.metadata().id().equals(writing.snapshot().metadata().id())
                || !now.metadata().schemaString().equals(writing.snapshot().metadata().schemaString())) {
            throw new IllegalStateException(
                    "the table was made again, or its columns were changed, while it was refilled");
        }
        now.readWholeTable();
        if (metadata != null) {
            now.updateMetadataForTableOverwrite(withColumns(now.metadata(), metadata.schema()));
        }
        var actions = new ArrayList<Action>();
        var mark = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (mark.isDefined()) {
            actions.add(mark.get());
        }
        long time = System.currentTimeMillis();
        for (var file : now.snapshot().allFiles().collectAsList()) {
            actions.add(file.removeWithTimestamp(time, true));
        }
        actions.addAll(come);
        var overwrite = new DeltaOperations.Write(
                SaveMode.Overwrite, Option.empty(), Option.empty(), Option.empty(), Option.empty(), Option.empty(),
                Option.empty(), Option.empty(), Option.empty());
        return now.commit(CollectionConverters.asScala(actions).toSeq(), overwrite,
                scala.collection.immutable.Map$.MODULE$.empty());
    }

    private static Metadata withColumns(Metadata old, StructType columns) {
        return new Metadata(
                old.id(), old.name(), old.description(), old.format(), columns.json(), old.partitionColumns(),
                old.configuration(), old.createdTime());
    }
}
