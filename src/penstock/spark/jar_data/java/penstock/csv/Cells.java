package penstock.csv;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The cells of a CSV record as columns of text, and what is wrong with it, or NULL. Called by formats/csv.py, and
 * `split` by sources/files/format.py.
 */
public final class Cells implements Serializable {
    static final String FAULT = "__corrupt";

    private final Format format;
    private final int width;

    private Cells(Format format, int width) {
        this.format = format;
        this.width = width;
    }

    /** A struct with a text for each name, followed by FAULT. */
    public static Column column(Column text, List<String> names, Map<String, String> options) {
        StructType columns = new StructType();
        for (String name : names) {
            columns = columns.add(name, DataTypes.StringType);
        }
        columns = columns.add(FAULT, DataTypes.StringType);
        Cells cells = new Cells(new Format(options), names.size());
        Expression self = Literal.fromObject(cells, new ObjectType(Cells.class));
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(text))).toSeq();
        var types = CollectionConverters.asScala(List.<AbstractDataType>of(DataTypes.StringType)).toSeq();
        return ExpressionUtils.column(new Invoke(self, "read", columns, arguments, types, false, false, true));
    }

    /** The cells of one record, or null if it is not one. */
    public static List<String> split(String text, Map<String, String> options) {
        Format.Parts parts = new Format.Parts();
        if (new Format(options).read(text.getBytes(StandardCharsets.UTF_8), parts, Integer.MAX_VALUE) != null) {
            return null;
        }
        return new ArrayList<>(parts.cells.stream().map(cell -> cell == null ? "" : cell.toString()).toList());
    }

    /** Never null, and never throws, whatever a record holds. */
    public InternalRow read(UTF8String text) {
        Object[] row = new Object[width + 1];
        if (text == null) {
            row[width] = UTF8String.fromString("there is no text");
            return new GenericInternalRow(row);
        }
        Format.Parts parts = new Format.Parts();
        String fault = format.read(text.getBytes(), parts, width);
        if (fault == null && parts.count != width) {
            fault = miscounted(parts.count, width);
        }
        if (fault != null) {
            row[width] = UTF8String.fromString(fault);
            return new GenericInternalRow(row);
        }
        for (int i = 0; i < width; i++) {
            row[i] = parts.cells.get(i);
        }
        return new GenericInternalRow(row);
    }

    static String miscounted(int count, int width) {
        return (count == 1 ? "1 cell" : count + " cells") + ", not " + width;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Cells that && width == that.width && format.equals(that.format);
    }

    @Override
    public int hashCode() {
        return Objects.hash(format, width);
    }

    @Override
    public String toString() {
        return "penstock_csv";
    }
}
