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
 * A table with the rows of an earlier version, in one commit. Delta's RESTORE would put back columns and properties as
 * well, and with them what was decided since; this puts back rows alone.
 */
public final class Rewind {
    private static final int NAMED = 5;
    private final SparkSession spark;
    private final DeltaLog log;
    private final long version;
    private final OptimisticTransaction now;
    private final List<AddFile> come = new ArrayList<>();
    private final List<AddFile> go = new ArrayList<>();
    private final boolean sameColumns;

    private Rewind(SparkSession spark, DeltaLog log, long version) {
        this.spark = spark;
        this.log = log;
        this.version = version;
        now = log.startTransaction(Option.empty(), Option.empty());
        var then = log.getSnapshotAt(version, Option.empty(), Option.empty(), false);
        sameColumns = then.metadata().schemaString().equals(now.metadata().schemaString())
                && then.metadata().partitionColumns().equals(now.metadata().partitionColumns());
        var before = then.allFiles().collectAsList();
        var present = now.snapshot().allFiles().collectAsList();
        add(come, before, names(present));
        add(go, present, names(before));
    }

    public static Rewind to(SparkSession spark, String path, long version) {
        SparkSession.setActiveSession(spark);
        return new Rewind(spark, DeltaLog.forTable(spark, path), version);
    }

    /** Whether the table had the same columns then, and was partitioned by the same ones. */
    public boolean sameColumns() {
        return sameColumns;
    }

    /** Some of the files that would have to come back and are no longer there, a line each. */
    public String missing() throws IOException {
        var found = new ArrayList<String>();
        var conf = log.newDeltaHadoopConf();
        for (var file : come) {
            Path path = DeltaFileOperations$.MODULE$.absolutePath(log.dataPath().toString(), file.path());
            var marks = file.deletionVector();
            var gone = !path.getFileSystem(conf).exists(path)
                    || marks != null && marks.isOnDisk() && !exists(marks.absolutePath(log.dataPath()));
            if (gone && found.size() < NAMED) {
                found.add(file.path());
            }
        }
        return String.join("\n", found);
    }

    /** The version. */
    public long commit() {
        SparkSession.setActiveSession(spark); // Delta takes what goes with a commit from the session that is active
        now.readWholeTable();
        var actions = new ArrayList<Action>();
        var mark = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (mark.isDefined()) {
            actions.add(mark.get());
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

    private static void add(List<AddFile> into, List<AddFile> files, Set<String> others) {
        for (var file : files) {
            if (!others.contains(name(file))) {
                into.add(file);
            }
        }
    }

    private static Set<String> names(List<AddFile> files) {
        var found = new HashSet<String>();
        for (var file : files) {
            found.add(name(file));
        }
        return found;
    }

    /** A file with other rows marked as deleted is another one. */
    private static String name(AddFile file) {
        return file.path() + " " + file.getDeletionVectorUniqueId().getOrElse(() -> "");
    }
}
