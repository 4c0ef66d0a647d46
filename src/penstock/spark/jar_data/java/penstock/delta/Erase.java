package penstock.delta;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.commands.cdc.CDCReader;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rewrites files of a table without some of their rows, in one commit, for erasure/rewrite.py. Delta's own DELETE would
 * write into the log, in plain text, what it searched for, and would leave rows that are only marked as deleted in
 * their files.
 */
public final class Erase {
    private static final scala.collection.immutable.Map<String, String> NOTHING =
            scala.collection.immutable.Map$.MODULE$.empty();

    /**
     * The files of a version, kept because they are needed several times and Delta reads them by Spark jobs each time.
     */
    private record Known(String table, long version, List<AddFile> files) {}

    private static final Map<String, Known> KNOWN = Files.perTable();

    private final SparkSession spark;
    private final DeltaLog log;
    private final OptimisticTransaction transaction;
    private final List<AddFile> files;
    private final List<AddFile> chosen = new ArrayList<>();

    private Erase(SparkSession spark, DeltaLog log) {
        this.spark = spark;
        this.log = log;
        transaction = log.startTransaction(Option.empty(), Option.empty());
        files = filesOf(log, transaction.snapshot());
    }

    private static List<AddFile> filesOf(DeltaLog log, Snapshot snapshot) {
        var path = log.dataPath().toString();
        var cached = KNOWN.get(path);
        if (cached == null || cached.version != snapshot.version() || !cached.table.equals(snapshot.metadata().id())) {
            cached = new Known(snapshot.metadata().id(), snapshot.version(), snapshot.allFiles().collectAsList());
            KNOWN.put(path, cached);
        }
        return cached.files;
    }

    public static Erase begin(SparkSession spark, String path) {
        SparkSession.setActiveSession(spark);
        return new Erase(spark, DeltaLog.forTable(spark, path));
    }

    /** The version that is read. */
    public long version() {
        return transaction.snapshot().version();
    }

    /** The columns of the table, as JSON. */
    public String schema() {
        return transaction.metadata().schema().json();
    }

    /** Whether the table keeps a change feed. */
    public boolean feeds() {
        return CDCReader.isCDCEnabledOnTable(transaction.metadata(), spark);
    }

    /** The files of the version, as the rows name them, one per line: one call for each of many would take long. */
    public String names() {
        return files.stream().map(this::name).collect(Collectors.joining("\n"));
    }

    /** How many files have rows that are only marked as deleted. */
    public long marked() {
        return files.stream().filter(file -> file.deletionVector() != null).count();
    }

    /** The rows of files of the version, each with the name of its file. */
    public Dataset<Row> rows(String names) {
        var wanted = lines(names);
        return read(files.stream().filter(file -> wanted.contains(name(file))).toList());
    }

    /** The same for those with rows marked as deleted, including these rows. */
    public Dataset<Row> withMarked(String names) {
        var wanted = lines(names);
        return read(files.stream()
                .filter(file -> file.deletionVector() != null && wanted.contains(name(file)))
                .map(Erase::unmarked)
                .toList());
    }

    /** The rows of files in the folder of the table, named by their paths within it, that belong to no version. */
    public Dataset<Row> others(String names) {
        var addFiles = new ArrayList<AddFile>();
        var values = new HashMap<String, String>();
        transaction.metadata().physicalPartitionColumns().foreach(name -> values.put(name, null));
        var partition = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(values));
        for (var name : lines(names)) {
            addFiles.add(new AddFile(
                    new org.apache.hadoop.fs.Path(null, null, name).toUri().toString(), partition, 1L << 20, 0L, true,
                    null, null, null, Option.empty(), Option.empty(), Option.empty(), Option.empty(), Option.empty()));
        }
        return read(addFiles);
    }

    /** Selects the files to rewrite, by their names. */
    public void choose(String names) {
        var wanted = lines(names);
        chosen.clear();
        for (var file : files) {
            if (wanted.remove(name(file))) {
                chosen.add(file);
            }
        }
        if (!wanted.isEmpty()) {
            throw new IllegalStateException(
                    "rows are said to lie in " + wanted.iterator().next() + ", which was not read");
        }
    }

    /** The rows of the files to rewrite. */
    public Dataset<Row> chosen() {
        return read(chosen);
    }

    /**
     * @param newRows what those files shall hold; with a column _change_type those where it is not null are changes for
     *     the feed
     * @param numbers metrics for the table's history, by Delta's names
     * @return the version
     */
    @SuppressWarnings("unchecked")
    public long commit(Dataset<Row> newRows, Map<String, Number> numbers) {
        SparkSession.setActiveSession(spark); // Delta takes the settings of a commit from the active session
        var actions = new ArrayList<Action>();
        actions.addAll(CollectionConverters.asJava(transaction.writeFiles(newRows)));
        long time = System.currentTimeMillis();
        for (var file : chosen) {
            actions.add(withoutStatistics(file).removeWithTimestamp(time, true));
        }
        var metrics = new HashMap<String, SQLMetric>();
        numbers.forEach((name, value) -> {
            var metric = SQLMetrics.createMetric(spark.sparkContext(), name);
            metric.set(value.longValue());
            metrics.put(name, metric);
        });
        transaction.registerSQLMetrics(
                spark, scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
        var noPredicates = (scala.collection.immutable.Seq<org.apache.spark.sql.catalyst.expressions.Expression>)
                (Object) scala.collection.immutable.Nil$.MODULE$;
        return transaction.commit(
                CollectionConverters.asScala(actions).toSeq(), new DeltaOperations.Delete(noPredicates), NOTHING);
    }

    /**
     * Writes a checkpoint of the log at its newest version: readers of it and of later ones need nothing that is older.
     * It is made from the files on disk: what Delta has cached of them may hold what was erased since.
     */
    public static long checkpoint(SparkSession spark, String path) {
        SparkSession.setActiveSession(spark);
        DeltaLog.invalidateCache(spark, new org.apache.hadoop.fs.Path(path));
        KNOWN.remove(DeltaLog.forTable(spark, path).dataPath().toString());
        var log = DeltaLog.forTable(spark, path);
        var snapshot = log.update(false, Option.empty(), Option.empty());
        log.checkpoint(snapshot, Option.empty());
        return snapshot.version();
    }

    private Dataset<Row> read(List<AddFile> selected) {
        SparkSession.setActiveSession(spark);
        return log.createDataFrame(
                transaction.snapshot(), CollectionConverters.asScala(selected).toSeq(), false, Option.empty())
                .selectExpr("*", "_metadata.file_path AS " + Exchange.FILE);
    }

    private String name(AddFile file) {
        return SparkPath.fromPath(file.absolutePath(log)).urlEncoded();
    }

    private static Set<String> lines(String names) {
        return new LinkedHashSet<>(names.lines().toList());
    }

    private static AddFile unmarked(AddFile file) {
        return copy(file, file.stats(), null);
    }

    /** Without the lowest and highest values of a removed file, which would stay in the log. */
    private static AddFile withoutStatistics(AddFile file) {
        return copy(file, null, file.deletionVector());
    }

    private static AddFile copy(AddFile file, String stats, DeletionVectorDescriptor deletionVector) {
        return file.copy(
                file.path(), file.partitionValues(), file.size(), file.modificationTime(), file.dataChange(), stats,
                file.tags(), deletionVector, file.baseRowId(), file.defaultRowCommitVersion(),
                file.clusteringProvider(), file.copy$default$12(), file.copy$default$13());
    }
}
