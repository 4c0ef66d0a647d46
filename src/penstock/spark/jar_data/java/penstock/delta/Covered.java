package penstock.delta;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.RemoveFile;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a stream over a table has read up to a position within a version, as rows for a batch; called by
 * sources/delta.py. Files are counted as Delta's streaming source counts them.
 */
public final class Covered {
    private Covered() {}

    /** The first files, up to `index`, of the snapshot that a stream starts from. */
    public static Dataset<Row> ofSnapshot(SparkSession spark, String path, long version, long index) {
        var log = open(spark, path);
        var snapshot = at(log, version);
        var files = new ArrayList<>(snapshot.allFiles().collectAsList());
        files.sort(Comparator.comparingLong(AddFile::modificationTime).thenComparing(AddFile::path));
        return rows(log, snapshot, files.subList(0, (int) Math.min(files.size(), index + 1)));
    }

    /**
     * All rows as of the version before, and the first files, up to `index`, that the version added. With `changes`
     * also if that version changes rows.
     */
    public static Dataset<Row> upTo(SparkSession spark, String path, long version, long index, boolean changes) {
        var log = open(spark, path);
        var files = new ArrayList<AddFile>();
        if (version > 0) {
            files.addAll(at(log, version - 1).allFiles().collectAsList());
        }
        var added = added(log, version, version, changes);
        files.addAll(added.subList(0, (int) Math.min(added.size(), index + 1)));
        return rows(log, at(log, version), files);
    }

    /**
     * What the versions from `first` have added: all of those before `version`, and that one up to `index`. With
     * `changes` also the files of versions that change rows, as a stream with ignoreChanges reads them.
     */
    public static Dataset<Row> between(
            SparkSession spark, String path, long first, long version, long index, boolean changes) {
        var log = open(spark, path);
        var files = new ArrayList<AddFile>();
        if (version > first) {
            files.addAll(added(log, first, version - 1, changes));
        }
        long last = version - 1;
        if (index >= 0) {
            var added = added(log, version, version, changes);
            files.addAll(added.subList(0, (int) Math.min(added.size(), index + 1)));
            last = version;
        }
        return rows(log, at(log, Math.max(last, 0)), files);
    }

    /** Delta creates its rows in the active session, whichever session it was passed. */
    private static DeltaLog open(SparkSession spark, String path) {
        SparkSession.setActiveSession(spark);
        return DeltaLog.forTable(spark, path);
    }

    /** Commits that change rows are not read by a stream, unless it has ignoreChanges. */
    private static List<AddFile> added(DeltaLog log, long first, long last, boolean changes) {
        var added = new ArrayList<AddFile>();
        var commits = CollectionConverters.asJava(log.getChanges(first, last, Option.empty(), true));
        while (commits.hasNext()) {
            List<Action> actions = CollectionConverters.asJava(commits.next()._2());
            if (!changes
                    && actions.stream().anyMatch(action -> action instanceof RemoveFile file && file.dataChange())) {
                continue;
            }
            for (var action : actions) {
                if (action instanceof AddFile file && file.dataChange()) {
                    added.add(file);
                }
            }
        }
        return added;
    }

    private static Snapshot at(DeltaLog log, long version) {
        return log.getSnapshotAt(version, Option.empty(), Option.empty(), false);
    }

    private static Dataset<Row> rows(DeltaLog log, Snapshot snapshot, List<AddFile> files) {
        return log.createDataFrame(snapshot, CollectionConverters.asScala(files).toSeq(), false, Option.empty());
    }
}
