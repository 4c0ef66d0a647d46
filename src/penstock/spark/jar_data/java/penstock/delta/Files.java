package penstock.delta;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.RowTracking;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.actions.RemoveFile;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;

/**
 * The files of a table as of one version, with their statistics, for Exchange. Delta rebuilds them by Spark jobs after
 * every commit; the only writer of a table knows what it has committed itself, and updates them with that.
 */
final class Files {
    private static final int TABLES = 200;
    private static final long ROUNDED_MICROS = 1000;
    private static final Pattern ZONED = Pattern.compile("(Z|[+-]\\d{2}:?\\d{2})$");
    /** The range of a column that has no value in a file. */
    private static final Object[] NOTHING = {};
    /** Exact: a decimal read as a double would be another bound, and a row beyond it would not be found. */
    private static final ObjectMapper JSON =
            new ObjectMapper().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);
    private static final Map<String, Files> KNOWN = perTable();

    private final String table;
    private final long version;
    private final Map<String, Known> files;

    private static final class Known {
        final AddFile file;
        final Map<String, Object[]> bounds = new HashMap<>();
        JsonNode statistics;

        Known(AddFile file) {
            this.file = file;
        }
    }

    private Files(String table, long version, Map<String, Known> files) {
        this.table = table;
        this.version = version;
        this.files = files;
    }

    /** A map of the most recently used tables, limited so that it does not fill the memory of a long-lived process. */
    static <V> Map<String, V> perTable() {
        return Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, V> eldest) {
                return size() > TABLES;
            }
        });
    }

    /** The files as of the snapshot: those that were kept up to date, or else read by Spark. */
    static Files of(DeltaLog log, Snapshot snapshot) {
        var path = log.dataPath().toString();
        synchronized (KNOWN) {
            var cached = KNOWN.get(path);
            if (cached != null && cached.version == snapshot.version()
                    && cached.table.equals(snapshot.metadata().id())) {
                return cached;
            }
        }
        var files = new LinkedHashMap<String, Known>();
        for (var file : snapshot.allFiles().collectAsList()) {
            files.put(file.path(), new Known(file));
        }
        var loaded = new Files(snapshot.metadata().id(), snapshot.version(), files);
        synchronized (KNOWN) { // a table that every batch reads and few write to is loaded once
            KNOWN.put(path, loaded);
        }
        return loaded;
    }

    /**
     * Updates the files after a commit, if no other writer has committed in between. With row tracking Delta numbers
     * the rows of new files only as it commits, so that these files have to be read from its log.
     */
    void advance(DeltaLog log, Protocol protocol, long committed, List<Action> actions) {
        var path = log.dataPath().toString();
        synchronized (KNOWN) {
            KNOWN.remove(path);
            if (committed != version + 1 || RowTracking.isSupported(protocol)) {
                return;
            }
            for (var action : actions) {
                if (action instanceof RemoveFile removed) {
                    files.remove(removed.path());
                }
            }
            for (var action : actions) {
                if (action instanceof AddFile file) {
                    files.put(file.path(), new Known(file));
                }
            }
            KNOWN.put(path, new Files(table, committed, files));
        }
    }

    int size() {
        return files.size();
    }

    /** The files that can hold a row within all the bounds. */
    List<AddFile> within(List<Bounds> bounds, String zone) {
        var matches = new ArrayList<AddFile>();
        for (var known : files.values()) {
            if (bounds.stream().allMatch(bound -> mayHold(known, bound, zone))) {
                matches.add(known.file);
            }
        }
        return matches;
    }

    private static boolean mayHold(Known known, Bounds bounds, String zone) {
        var range = known.bounds.computeIfAbsent(bounds.inFiles, column -> range(known, column, bounds.type, zone));
        return range != NOTHING && bounds.mayHold(range[0], range[1]);
    }

    private static Object[] range(Known known, String column, DataType type, String zone) {
        var partition = known.file.partitionValues().get(column);
        if (partition.isDefined()) {
            if (partition.get() == null) {
                return NOTHING;
            }
            if (type.equals(DataTypes.TimestampType) && !ZONED.matcher(partition.get()).find()) {
                return new Object[] {null, null}; // a local time: two instants where clocks are set back
            }
            var value = value(partition.get(), type, zone);
            return new Object[] {value, value};
        }
        if (known.statistics == null) {
            known.statistics = statistics(known.file.stats());
        }
        var nulls = known.statistics.path("nullCount").path(column);
        if (nulls.isIntegralNumber() && nulls.equals(known.statistics.path("numRecords"))) {
            return NOTHING; // deletion vectors do not change such counts
        }
        var least = text(known.statistics.path("minValues").path(column));
        var greatest = text(known.statistics.path("maxValues").path(column));
        var range = new Object[] {value(least, type, zone), value(greatest, type, zone)};
        if (range[1] instanceof Long last && isTime(type)) {
            range[1] = last + ROUNDED_MICROS; // statistics are in milliseconds
        }
        return range;
    }

    private static boolean isTime(DataType type) {
        return type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
    }

    private static JsonNode statistics(String text) {
        try {
            return JSON.readTree(text == null || text.isEmpty() ? "{}" : text);
        } catch (com.fasterxml.jackson.core.JsonProcessingException unreadable) {
            return JSON.createObjectNode();
        }
    }

    private static String text(JsonNode value) {
        return value.isValueNode() && !value.isNull() ? value.asText() : null;
    }

    private static Object value(String text, DataType type, String zone) {
        return text == null
                ? null
                : new Cast(Literal.create(text, DataTypes.StringType), type, Option.apply(zone), EvalMode.TRY())
                        .eval(null);
    }
}
