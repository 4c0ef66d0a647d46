package penstock.delta;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper$;
import org.apache.spark.sql.delta.util.DeltaFileOperations$;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Restores the rows of an earlier version of a table, in one commit, for operations/rewind.py. Delta's RESTORE would
 * restore columns and properties as well, and undo what was decided since; this restores rows alone.
 */
public final class Rewind {
    private static final int NAMED = 5;
    private final SparkSession spark;
    private final DeltaLog log;
    private final long version;
    private final OptimisticTransaction now;
    private final List<AddFile> come = new ArrayList<>(); // the files to restore
    private final List<AddFile> go = new ArrayList<>(); // the files to remove
    private final boolean sameColumns;

    private Rewind(SparkSession spark, DeltaLog log, long version) {
        this.spark = spark;
        this.log = log;
        this.version = version;
        now = log.startTransaction(Option.empty(), Option.empty());
        var earlier = log.getSnapshotAt(version, Option.empty(), Option.empty(), false);
        sameColumns = earlier.metadata().schemaString().equals(now.metadata().schemaString())
                && earlier.metadata().partitionColumns().equals(now.metadata().partitionColumns());
        var earlierFiles = earlier.allFiles().collectAsList();
        var currentFiles = now.snapshot().allFiles().collectAsList();
        add(come, earlierFiles, names(currentFiles));
        add(go, currentFiles, names(earlierFiles));
    }

    public static Rewind to(SparkSession spark, String path, long version) {
        SparkSession.setActiveSession(spark);
        return new Rewind(spark, DeltaLog.forTable(spark, path), version);
    }

    /** Whether the table had the same columns in that version, and was partitioned by the same ones. */
    public boolean sameColumns() {
        return sameColumns;
    }

    /** Some of the files that would have to be restored and no longer exist, one per line. */
    public String missing() throws IOException {
        var missing = new ArrayList<String>();
        var conf = log.newDeltaHadoopConf();
        for (var file : come) {
            Path path = DeltaFileOperations$.MODULE$.absolutePath(log.dataPath().toString(), file.path());
            var vector = file.deletionVector();
            var isMissing = !path.getFileSystem(conf).exists(path)
                    || vector != null && vector.isOnDisk() && !exists(vector.absolutePath(log.dataPath()));
            if (isMissing && missing.size() < NAMED) {
                missing.add(file.path());
            }
        }
        return String.join("\n", missing);
    }

    /** Commits the earlier rows; returns the version. */
    public long commit() {
        SparkSession.setActiveSession(spark); // Delta takes the settings of a commit from the active session
        now.readWholeTable();
        var actions = new ArrayList<Action>();
        var setTransaction = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (setTransaction.isDefined()) {
            actions.add(setTransaction.get());
        }
        long time = System.currentTimeMillis();
        for (var file : go) {
            actions.add(file.removeWithTimestamp(time, true));
        }
        for (var file : come) {
            actions.add(new AddFile(
                    file.path(), file.partitionValues(), file.size(), file.modificationTime(), true, file.stats(),
                    file.tags(), file.deletionVector(), file.baseRowId(), file.defaultRowCommitVersion(),
                    file.clusteringProvider(), file.backReference(), file.amtPassthrough()));
        }
        return now.commit(
                CollectionConverters.asScala(actions).toSeq(),
                new DeltaOperations.Restore(Option.apply(version), Option.empty()),
                scala.collection.immutable.Map$.MODULE$.empty());
    }

    private boolean exists(Path path) throws IOException {
        return path.getFileSystem(log.newDeltaHadoopConf()).exists(path);
    }

    private static void add(List<AddFile> target, List<AddFile> files, Set<String> others) {
        for (var file : files) {
            if (!others.contains(name(file))) {
                target.add(file);
            }
        }
    }

    private static Set<String> names(List<AddFile> files) {
        var names = new HashSet<String>();
        for (var file : files) {
            names.add(name(file));
        }
        return names;
    }

    /** A file with other rows marked as deleted is a different one. */
    private static String name(AddFile file) {
        return file.path() + " " + file.getDeletionVectorUniqueId().getOrElse(() -> "");
    }
}
