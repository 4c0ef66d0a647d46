package penstock.delta;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.math.Ordering;

/** A column of a table within ranges. Each range has a first and a last value, which belong to it. */
public final class Bounds {
    final String column;
    final DataType type;
    private final List<Row> ranges;
    private final List<Object[]> values = new ArrayList<>();
    private final Ordering<Object> ordering;

    private Bounds(String column, DataType type, List<Row> ranges) {
        this.column = column;
        this.type = type;
        this.ranges = ranges;
        ordering = TypeUtils.getInterpretedOrdering(type);
        var toInner = CatalystTypeConverters.createToCatalystConverter(type);
        for (var range : ranges) {
            values.add(new Object[] {toInner.apply(range.get(0)), toInner.apply(range.get(1))});
        }
    }

    /** One per column of a row, whose values are arrays of ranges; a column without a value has no bounds. */
    public static List<Bounds> of(Row found, StructType table) {
        var bounds = new ArrayList<Bounds>();
        for (int i = 0; i < found.size(); i++) {
            if (!found.isNullAt(i)) {
                var name = found.schema().fields()[i].name();
                bounds.add(new Bounds(name, table.apply(name).dataType(), found.getList(i)));
            }
        }
        return bounds;
    }

    /** Whether one of the ranges has a value between two; null is not known, so it may. */
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

    /** The same for the rows: Parquet skips what it can by it. */
    Column condition() {
        var value = functions.col("`" + column.replace("`", "``") + "`");
        Column any = null;
        for (var range : ranges) {
            var within = value.geq(functions.lit(range.get(0))).and(value.leq(functions.lit(range.get(1))));
            any = any == null ? within : any.or(within);
        }
        return any;
    }
}
