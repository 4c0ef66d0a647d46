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
 * Rows of a table exchanged for others, in one commit: those that go are marked in deletion vectors, by file and place;
 * those that come are appended. Delta's own MERGE does the same in a dozen Spark jobs, because it has to find the rows
 * and decide upon them within one statement; here the caller has done both, and what is left is a write and a commit.
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
    private final List<Row> go = new ArrayList<>();

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

    /** By Delta's own record of transactions, where the session names one: what it is about to do is in the table. */
    public boolean done() {
        return DMLWithDeletionVectorsHelper$.MODULE$.hasBeenExecuted(transaction, spark, Option.empty());
    }

    /** Which of the table's files can hold a row within the ranges, all of them if null; how many that are. */
    public int look(Row ranges) {
        bounds = ranges == null ? List.of() : Bounds.of(ranges, transaction.metadata().schema());
        candidates = files.within(bounds, spark.sessionState().conf().sessionLocalTimeZone());
        return candidates.size();
    }

    /** The same with more ranges for some columns. */
    public int lookCloser(Row ranges) {
        bounds = Stream.concat(bounds.stream(), Bounds.of(ranges, transaction.metadata().schema()).stream()).toList();
        candidates = files.within(bounds, spark.sessionState().conf().sessionLocalTimeZone());
        return candidates.size();
    }

    /** No file is read. */
    public void lookAtNothing() {
        candidates = List.of();
    }

    /** How many files are read. */
    public int candidates() {
        return candidates.size();
    }

    /** Whether the table keeps a change feed, whatever was asked for when it was made. */
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

    /** How many the table has. */
    public int files() {
        return files.size();
    }

    /** The rows of the candidates within the ranges, each with its file and its place in it. */
    public Dataset<Row> rows() {
        return content().selectExpr("*", "_metadata.file_path AS " + FILE, "_metadata.row_index AS " + PLACE);
    }

    /** The same rows without their places, which only tables with deletion vectors have. */
    public Dataset<Row> content() {
        var rows = log.createDataFrame(
                transaction.snapshot(), CollectionConverters.asScala(candidates).toSeq(), false, Option.empty());
        for (var one : bounds) {
            rows = rows.where(one.condition());
        }
        return rows;
    }

    /**
     * What goes: a row per file with its name, the places of the rows that go, and numbers, which are added up over all
     * files. Rows without a file have numbers only.
     */
    public long[] find(Dataset<Row> turned) {
        var numbers = new long[turned.schema().size() - 2];
        go.clear();
        for (var row : turned.collectAsList()) {
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] += row.getLong(i + 2);
            }
            if (!row.isNullAt(0) && !row.getList(1).isEmpty()) {
                go.add(row);
            }
        }
        return numbers;
    }

    /** Whether a row goes. */
    public boolean goes() {
        return !go.isEmpty();
    }

    /**
     * @param come the rows to append; with a column _change_type those where it is not null are changes for the feed
     * @param told numbers for the table's history, by Delta's names
     * @param seen whether readers of changes are to see what goes
     */
    public long commit(Dataset<Row> come, Map<String, Number> told, boolean seen) throws IOException {
        // another table may have been looked at meanwhile: Delta asks the active one
        SparkSession.setActiveSession(spark);
        var actions = new ArrayList<Action>();
        var mark = DMLWithDeletionVectorsHelper$.MODULE$.createSetTransaction(spark, log, Option.empty());
        if (mark.isDefined()) {
            actions.add(mark.get());
        }
        if (come != null) {
            actions.addAll(CollectionConverters.asJava(transaction.writeFiles(come)));
        }
        if (!go.isEmpty()) {
            actions.addAll(marked(seen));
        }
        var metrics = new HashMap<String, SQLMetric>();
        told.forEach((name, value) -> {
            var metric = SQLMetrics.createMetric(spark.sparkContext(), name);
            metric.set(value.longValue());
            metrics.put(name, metric);
        });
        transaction.registerSQLMetrics(
                spark, scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
        var none = scala.collection.immutable.Nil$.MODULE$;
        @SuppressWarnings("unchecked")
        var merge = new DeltaOperations.Merge(
                Option.empty(), Option.empty(), Option.empty(), Option.empty(),
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) none,
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) none,
                (scala.collection.immutable.Seq<DeltaOperations.MergePredicate>) (Object) none);
        long version = transaction.commit(CollectionConverters.asScala(actions).toSeq(), merge, NO_TAGS);
        files.advance(log, transaction.protocol(), version, actions);
        return version;
    }

    /** The files of the rows that go, with these marked. */
    private List<Action> marked(boolean seen) throws IOException {
        var read = new HashMap<String, AddFile>();
        for (var file : candidates) {
            read.put(SparkPath.fromPath(file.absolutePath(log)).urlEncoded(), file);
        }
        var store = DeletionVectorStore$.MODULE$.createInstance(log.newDeltaHadoopConf());
        var opened = DeletionVectorWriter$.MODULE$.createWriter(store, store.pathWithFileSystem(log.dataPath()), "");
        var actions = new ArrayList<Action>();
        var odd = new ArrayList<TouchedFileWithDV>();
        try (var writer = opened._1()) {
            for (var row : go) {
                var file = read.get(row.getString(0));
                List<Long> places = row.getList(1);
                if (file == null) {
                    throw new IllegalStateException(
                            "rows are said to lie in " + row.getString(0) + ", which was not read");
                }
                var gone = new RoaringBitmapArray();
                places.forEach(gone::add);
                if (file.deletionVector() != null) {
                    gone.or(StoredBitmap$.MODULE$.create(file.deletionVector(), log.dataPath()).load(store));
                }
                if (gone.cardinality() != places.size() + file.numDeletedRecords()) {
                    throw new IllegalStateException("a row of " + row.getString(0) + " would go twice");
                }
                var bytes = gone.serializeAsByteArray(RoaringBitmapArrayFormat$.MODULE$.Portable());
                var vector = DeletionVectorDescriptor.onDiskWithRelativePath(
                        opened._2(), "", bytes.length, gone.cardinality(),
                        Option.apply(writer.write(bytes).offset()), Option.empty());
                var touched = new TouchedFileWithDV(row.getString(0), file, vector, places.size());
                if (file.numPhysicalRecords().isEmpty() || (file.deletionVector() != null && isTight(file))) {
                    odd.add(touched);
                } else if (touched.isFullyReplaced()) {
                    actions.add(file.removeWithTimestamp(System.currentTimeMillis(), seen));
                } else {
                    var changed = file.removeRows(vector, true, seen);
                    actions.add(changed._1());
                    actions.add(changed._2());
                }
            }
        }
        if (!odd.isEmpty()) { // statistics that are missing, or that others have computed: Delta knows what to do
            int prefix = StatsCollectionUtils$.MODULE$.getDataSkippingStringPrefixLength(spark, transaction.metadata());
            var asked = CollectionConverters.asScala(odd).toSeq();
            actions.addAll(CollectionConverters.asJava(DMLWithDeletionVectorsHelper$.MODULE$
                    .processUnmodifiedData(spark, asked, transaction.snapshot(), prefix)._1()));
        }
        return actions;
    }

    private static boolean isTight(AddFile file) {
        return file.tightBounds().exists(tight -> (Boolean) tight);
    }
}
