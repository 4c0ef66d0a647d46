package penstock.delta;

import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.delta.DeltaColumnMapping;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.math.Ordering;

/**
 * The ranges that limit the values of a column, for Exchange. Each range has a first and a last value, which belong to
 * it. Those of a DATE come as days and those of a TIMESTAMP as microseconds since 1970: Java's types for them use the
 * zone of the process.
 */
public final class Bounds {
    private static final int MOST_RANGES = 8;
    private static final long FARTHEST = 1L << 61;
    final String column;
    /** Its name in the files and their statistics: a different one with column mapping. */
    final String inFiles;
    final DataType type;
    private final List<Row> ranges;
    private final List<Object[]> values = new ArrayList<>();
    private final Ordering<Object> ordering;

    private Bounds(StructField field, List<Row> ranges) {
        column = field.name();
        inFiles = DeltaColumnMapping.getPhysicalName(field);
        type = field.dataType();
        this.ranges = ranges;
        ordering = TypeUtils.getInterpretedOrdering(type);
        boolean isTime = type.equals(DataTypes.DateType) || type.equals(DataTypes.TimestampType);
        var toInner = CatalystTypeConverters.createToCatalystConverter(type);
        for (var range : ranges) {
            var ends = new Object[] {range.get(0), range.get(1)};
            values.add(isTime && ends[0] instanceof Number
                    ? ends
                    : new Object[] {toInner.apply(ends[0]), toInner.apply(ends[1])});
        }
    }

    /** One per column of a row, whose values are arrays of ranges; a column without a value has no bounds. */
    public static List<Bounds> of(Row ranges, StructType table) {
        var bounds = new ArrayList<Bounds>();
        for (int i = 0; i < ranges.size(); i++) {
            if (!ranges.isNullAt(i)) {
                bounds.add(new Bounds(table.apply(ranges.schema().fields()[i].name()), ranges.getList(i)));
            }
        }
        return bounds;
    }

    /** Whether one of the ranges has a value between the two; null is unknown, so it may. */
    boolean mayHold(Object least, Object greatest) {
        if (least == null || greatest == null) {
            return true;
        }
        for (var range : values) {
            if (ordering.compare(greatest, range[0]) >= 0 && ordering.compare(least, range[1]) <= 0) {
                return true;
            }
        }
        return false;
    }

    /**
     * The condition for rows, with which Parquet skips what it can. Numbers and times become part of the code that
     * Spark compiles, and new code is slow at first; so the ranges are widened to round numbers, which the next batches
     * have too.
     */
    Column condition() {
        var value = functions.col("`" + column.replace("`", "``") + "`");
        var wide = new TreeMap<Long, Long>();
        Column condition = null;
        for (int i = 0; i < ranges.size(); i++) {
            var first = values.get(i)[0];
            var last = values.get(i)[1];
            if (isCounted() && first instanceof Number least && last instanceof Number greatest) {
                widen(least.longValue(), greatest.longValue(), wide);
            } else {
                condition = or(condition, value, ranges.get(i).get(0), ranges.get(i).get(1));
            }
        }
        if (wide.size() > MOST_RANGES) {
            var all = Map.entry(wide.firstKey(), wide.values().stream().max(Long::compare).orElseThrow());
            wide.clear();
            wide.put(all.getKey(), all.getValue());
        }
        for (var range : wide.entrySet()) {
            condition = or(condition, value, counted(range.getKey()), counted(range.getValue()));
        }
        return condition;
    }

    private static Column or(Column condition, Column value, Object first, Object last) {
        var within = value.geq(functions.lit(first)).and(value.leq(functions.lit(last)));
        return condition == null ? within : condition.or(within);
    }

    private boolean isCounted() {
        return type.equals(DataTypes.LongType) || type.equals(DataTypes.IntegerType) || type.equals(DataTypes.DateType)
                || type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
    }

    /**
     * Widens a range to the ends of the one or two blocks that hold it, and merges it with the range that it touches.
     */
    private static void widen(long least, long greatest, TreeMap<Long, Long> ranges) {
        long low = least;
        long high = greatest;
        if (greatest - least >= 0 && greatest - least < FARTHEST && Math.abs(least) < FARTHEST) {
            long block = 2 * Long.highestOneBit(Math.max(greatest - least, 1));
            low = Math.floorDiv(least, block) * block;
            high = Math.floorDiv(greatest, block) * block + block - 1;
        }
        var before = ranges.floorEntry(low);
        if (before != null && before.getValue() >= low - 1) {
            low = before.getKey();
            high = Math.max(high, before.getValue());
        }
        ranges.merge(low, high, Math::max);
    }

    private Object counted(long number) {
        if (type.equals(DataTypes.IntegerType)) {
            return (int) Math.max(Integer.MIN_VALUE, Math.min(Integer.MAX_VALUE, number));
        }
        if (type.equals(DataTypes.DateType)) {
            return LocalDate.ofEpochDay(number);
        }
        if (type.equals(DataTypes.LongType)) {
            return number;
        }
        long seconds = Math.floorDiv(number, 1_000_000L);
        int nanos = (int) Math.floorMod(number, 1_000_000L) * 1000;
        return type.equals(DataTypes.TimestampType)
                ? Instant.ofEpochSecond(seconds, nanos)
                : LocalDateTime.ofEpochSecond(seconds, nanos, ZoneOffset.UTC);
    }
}
