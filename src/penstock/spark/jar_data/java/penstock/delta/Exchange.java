package penstock.delta;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper$;
import org.apache.spark.sql.delta.commands.DeletionVectorWriter$;
import org.apache.spark.sql.delta.commands.TouchedFileWithDV;
import org.apache.spark.sql.delta.commands.cdc.CDCReader;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArrayFormat$;
import org.apache.spark.sql.delta.deletionvectors.StoredBitmap$;
import org.apache.spark.sql.delta.stats.StatsCollectionUtils$;
import org.apache.spark.sql.delta.storage.dv.DeletionVectorStore$;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Replaces rows of a table with others in one commit: old rows are marked in deletion vectors, by file and row index;
 * new rows are appended. Delta's own MERGE does the same in a dozen Spark jobs, because it has to find the rows and
 * decide on them within one statement; here the caller, tables/merge/row_exchange.py, has done both, and only a write
 * and a commit remain.
 *
 * <p>The transaction begins before the caller reads, so that what others commit meanwhile is a conflict, as in MERGE.
 */
public final class Exchange {
    public static final String FILE = "__file";
    public static final String PLACE = "__place";
    private static final scala.collection.immutable.Map<String, String> NO_TAGS =
            scala.collection.immutable.Map$.MODULE$.empty();

    private final SparkSession spark;
    private final DeltaLog log;
    private final OptimisticTransaction transaction;
    private final Files files;
    private List<Bounds> bounds = List.of();
    private List<AddFile> candidates = List.of();
    private final List<Row> go = new ArrayList<>(); // the rows to remove, by file

    private Exchange(SparkSession spark, DeltaLog log) {
        this.spark = spark;
        this.log = log;
        transaction = log.startTransaction(Option.empty(), Option.empty());
        files = Files.of(log, transaction.snapshot());
        transaction.readWholeTable();
    }

    public static Exchange begin(SparkSession spark, String path) {
        SparkSession.setActiveSession(spark);
        return new Exchange(spark, DeltaLog.forTable(spark, path));
    }

    /**
     * Whether, by Delta's record of transactions, the table has what the session is about to write, if that names it.
     */
    public boolean done() {
        return DMLWithDeletionVectorsHelper$.MODULE$.hasBeenExecuted(transaction, spark, Option.empty());
    }

    /** Selects the files that can hold a row within the ranges, all of them if null; returns how many. */
    public int look(Row ranges) {
        bounds = ranges == null ? List.of() : Bounds.of(ranges, transaction.metadata().schema());
        candidates = files.within(bounds, spark.sessionState().conf().sessionLocalTimeZone());
        return candidates.size();
    }

    /** Selects again, with more ranges for some columns. */
    public int lookCloser(Row ranges) {
        bounds = Stream.concat(bounds.stream(), Bounds.of(ranges, transaction.metadata().schema()).stream()).toList();
        candidates = files.within(bounds, spark.sessionState().conf().sessionLocalTimeZone());
        return candidates.size();
    }

    /** Selects no file. */
    public void lookAtNothing() {
        candidates = List.of();
    }

    /** How many files are selected. */
    public int candidates() {
        return candidates.size();
    }

    /** Whether the table keeps a change feed, whatever was requested when it was created. */
    public boolean feeds() {
        return CDCReader.isCDCEnabledOnTable(transaction.metadata(), spark);
    }

    /** A property of the table, or null. */
    public String property(String name) {
        return transaction.metadata().configuration().get(name).getOrElse(() -> null);
    }

    /** The columns of the table, as JSON. */
    public String schema() {
        return transaction.metadata().schema().json();
    }

    /** How many files the table has. */
    public int files() {
        return files.size();
    }

    /** The rows of the selected files within the ranges, each with its file and its index in it. */
    public Dataset<Row> rows() {
        return content().selectExpr("*", "_metadata.file_path AS " + FILE, "_metadata.row_index AS " + PLACE);
    }

    /** The same rows without their indexes, which only tables with deletion vectors have. */
    public Dataset<Row> content() {
        var rows = log.createDataFrame(
                transaction.snapshot(), CollectionConverters.asScala(candidates).toSeq(), false, Option.empty());
        for (var bound : bounds) {
            rows = rows.where(bound.condition());
        }
        return rows;
    }

    /**
     * Takes the rows to remove: for each file a row with its name, the indexes of its rows to remove, and numbers,
     * which are added up over all files and returned. Rows without a file have numbers only.
     */
    public long[] find(Dataset<Row> removals) {
        var numbers = new long[removals.schema().size() - 2];
        go.clear();
        for (var row : removals.collectAsList()) {
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] += row.getLong(i + 2);
            }
            if (!row.isNullAt(0) && !row.getList(1).isEmpty()) {
                go.add(row);
            }
        }
        return numbers;
    }

    /** Whether a row is to be removed. */
    public boolean goes() {
        return !go.isEmpty();
    }

    /**
     * @param newRows the rows to append; with a column _change_type those where it is not null are changes for the feed
     * @param numbers metrics for the table's history, by Delta's names
     * @param visible whether readers of changes see the removed rows
     */
    public long commit(Dataset<Row> newRows, Map<String, Number> numbers, boolean visible) throws IOException {
        // another table may have been read meanwhile, and Delta uses the active session
        SparkSession.setActiveSession(spark);
        var actions = new ArrayList<Action>();
        var setTransaction = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (setTransaction.isDefined()) {
            actions.add(setTransaction.get());
        }
        if (newRows != null) {
            actions.addAll(CollectionConverters.asJava(transaction.writeFiles(newRows)));
        }
        if (!go.isEmpty()) {
            actions.addAll(marked(visible));
        }
        var metrics = new HashMap<String, SQLMetric>();
        numbers.forEach((name, value) -> {
            var metric = SQLMetrics.createMetric(spark.sparkContext(), name);
            metric.set(value.longValue());
            metrics.put(name, metric);
        });
        transaction.registerSQLMetrics(
                spark, scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
        var noPredicates = scala.collection.immutable.Nil$.MODULE$;
        @SuppressWarnings("unchecked")
        var merge = new DeltaOperations.Merge(
                Option.empty(), Option.empty(), Option.empty(), Option.empty(),
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) noPredicates,
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) noPredicates,
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) noPredicates);
        long version = transaction.commit(CollectionConverters.asScala(actions).toSeq(), merge, NO_TAGS);
        files.advance(log, transaction.protocol(), version, actions);
        return version;
    }

    /** The actions that mark the removed rows in their files. */
    private List<Action> marked(boolean visible) throws IOException {
        var filesByUri = new HashMap<String, AddFile>();
        for (var file : candidates) {
            filesByUri.put(SparkPath.fromPath(file.absolutePath(log)).urlEncoded(), file);
        }
        var store = DeletionVectorStore$.MODULE$.createInstance(log.newDeltaHadoopConf());
        var writerAndPath =
                DeletionVectorWriter$.MODULE$.createWriter(store, store.pathWithFileSystem(log.dataPath()), "");
        var actions = new ArrayList<Action>();
        var unusual = new ArrayList<TouchedFileWithDV>();
        try (var writer = writerAndPath._1()) {
            for (var row : go) {
                var file = filesByUri.get(row.getString(0));
                List<Long> places = row.getList(1);
                if (file == null) {
                    throw new IllegalStateException(
                            "rows are said to lie in " + row.getString(0) + ", which was not read");
                }
                var removed = new RoaringBitmapArray();
                places.forEach(removed::add);
                if (file.deletionVector() != null) {
                    removed.or(StoredBitmap$.MODULE$.create(file.deletionVector(), log.dataPath()).load(store));
                }
                if (removed.cardinality() != places.size() + file.numDeletedRecords()) {
                    throw new IllegalStateException("a row of " + row.getString(0) + " would go twice");
                }
                var bytes = removed.serializeAsByteArray(RoaringBitmapArrayFormat$.MODULE$.Portable());
                var vector = DeletionVectorDescriptor.onDiskWithRelativePath(
                        writerAndPath._2(), "", bytes.length, removed.cardinality(),
                        Option.apply(writer.write(bytes).offset()), Option.empty());
                var touched = new TouchedFileWithDV(row.getString(0), file, vector, places.size());
                if (file.numPhysicalRecords().isEmpty() || (file.deletionVector() != null && isTight(file))) {
                    unusual.add(touched);
                } else if (touched.isFullyReplaced()) {
                    actions.add(file.removeWithTimestamp(System.currentTimeMillis(), visible));
                } else {
                    var changed = file.removeRows(vector, true, visible);
                    actions.add(changed._1());
                    actions.add(changed._2());
                }
            }
        }
        if (!unusual.isEmpty()) { // statistics that are missing, or that others have computed: Delta handles them
            int prefix = StatsCollectionUtils$.MODULE$.getDataSkippingStringPrefixLength(spark, transaction.metadata());
            var touchedFiles = CollectionConverters.asScala(unusual).toSeq();
            actions.addAll(CollectionConverters.asJava(DMLWithDeletionVectorsHelper$.MODULE$
                    .processUnmodifiedData(spark, touchedFiles, transaction.snapshot(), prefix)._1()));
        }
        return actions;
    }

    private static boolean isTight(AddFile file) {
        return file.tightBounds().exists(tight -> (Boolean) tight);
    }
}
