package penstock.csv;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The cells of records whose files have headers, each file with its own order of columns: one expression for all files,
 * however many headers there are. Created by sources/files/csv.py.
 */
public final class Headed implements Serializable {
    static final String OTHERS = "__others";

    /** The index of each table column's cell, -1 for none; and the indexes and names of the cells without a column. */
    private record Order(int width, int[] places, int[] others, String[] names) implements Serializable {}

    private record Place(String line, long row) implements Serializable {}

    private final Map<String, String> options;
    private final List<String> columns;
    private final Map<String, List<String>> heads = new HashMap<>();
    private final Map<String, Place> files = new HashMap<>();
    private transient volatile Map<UTF8String, Order> orders;
    private transient volatile Map<UTF8String, UTF8String> lines;
    private transient volatile Format format;

    /** `columns`: those of the table. */
    public Headed(List<String> columns, Map<String, String> options) {
        this.columns = new ArrayList<>(columns);
        this.options = new HashMap<>(options);
    }

    /** Adds a header: its line, and the names of its cells. */
    public void head(String line, List<String> names) {
        heads.put(line, new ArrayList<>(names));
    }

    public void file(String name, String line, long row) {
        files.put(name, new Place(line, row));
    }

    /** The header line of a file; NULL if it has none. */
    public Column line(Column file) {
        return invoked("lineOf", DataTypes.StringType, List.of(file), List.of(DataTypes.StringType));
    }

    /** Whether a line of a file comes after its header. */
    public Column isBehind(Column file, Column row) {
        return invoked("isBehind", DataTypes.BooleanType, List.of(file, row),
                List.of(DataTypes.StringType, DataTypes.LongType));
    }

    /** A text for each column of the table, then what is wrong with the record, then the other cells as JSON. */
    public Column cells(Column line, Column text) {
        StructType struct = new StructType();
        for (String name : columns) {
            struct = struct.add(name, DataTypes.StringType);
        }
        struct = struct.add(Cells.FAULT, DataTypes.StringType).add(OTHERS, DataTypes.StringType);
        return invoked("read", struct, List.of(line, text), List.of(DataTypes.StringType, DataTypes.StringType));
    }

    private Column invoked(String method, DataType type, List<Column> columns, List<AbstractDataType> types) {
        Expression self = Literal.fromObject(this, new ObjectType(Headed.class));
        List<Expression> arguments = new ArrayList<>();
        columns.forEach(column -> arguments.add(ExpressionUtils.expression(column)));
        return ExpressionUtils.column(new Invoke(self, method, type, CollectionConverters.asScala(arguments).toSeq(),
                CollectionConverters.asScala(types).toSeq(), false, true, true));
    }

    public UTF8String lineOf(UTF8String file) {
        Map<UTF8String, UTF8String> current = lines;
        if (current == null) {
            current = new HashMap<>();
            for (Map.Entry<String, Place> entry : files.entrySet()) {
                current.put(UTF8String.fromString(entry.getKey()), UTF8String.fromString(entry.getValue().line));
            }
            lines = current;
        }
        return file == null ? null : current.get(file);
    }

    public boolean isBehind(UTF8String file, long row) {
        Place place = file == null ? null : files.get(file.toString());
        return place != null && row > place.row;
    }

    /** Never throws. NULL where the header is not known. */
    public InternalRow read(UTF8String line, UTF8String text) {
        Order order = line == null || text == null ? null : orders().get(line);
        if (order == null) {
            return null;
        }
        int width = columns.size();
        Object[] row = new Object[width + 2];
        Format.Parts parts = new Format.Parts();
        String fault = format().read(text.getBytes(), parts, order.width);
        if (fault == null && parts.count != order.width) {
            fault = Cells.miscounted(parts.count, order.width);
        }
        if (fault != null) {
            row[width] = UTF8String.fromString(fault);
            return new GenericInternalRow(row);
        }
        for (int i = 0; i < width; i++) {
            row[i] = order.places[i] < 0 ? null : parts.cells.get(order.places[i]);
        }
        row[width + 1] = others(order, parts.cells);
        return new GenericInternalRow(row);
    }

    private static UTF8String others(Order order, List<UTF8String> cells) {
        StringBuilder json = null;
        for (int i = 0; i < order.others.length; i++) {
            UTF8String cell = cells.get(order.others[i]);
            if (cell != null) {
                json = json == null ? new StringBuilder("{") : json.append(',');
                json.append('"').append(JsonStringEncoder.getInstance().quoteAsString(order.names[i])).append("\":\"");
                json.append(JsonStringEncoder.getInstance().quoteAsString(cell.toString())).append('"');
            }
        }
        return json == null ? null : UTF8String.fromString(json.append('}').toString());
    }

    private Map<UTF8String, Order> orders() {
        Map<UTF8String, Order> current = orders;
        if (current == null) {
            current = new HashMap<>();
            for (Map.Entry<String, List<String>> head : heads.entrySet()) {
                current.put(UTF8String.fromString(head.getKey()), order(head.getValue()));
            }
            orders = current;
        }
        return current;
    }

    /** Matches names regardless of case. Of two cells with one name the first is the column's. */
    private Order order(List<String> names) {
        Map<String, Integer> wanted = new HashMap<>();
        for (int i = 0; i < columns.size(); i++) {
            wanted.putIfAbsent(folded(columns.get(i)), i);
        }
        int[] places = new int[columns.size()];
        Arrays.fill(places, -1);
        List<Integer> others = new ArrayList<>();
        for (int i = 0; i < names.size(); i++) {
            Integer column = wanted.get(folded(names.get(i)));
            if (column != null && places[column] < 0) {
                places[column] = i;
            } else {
                others.add(i);
            }
        }
        return new Order(names.size(), places, others.stream().mapToInt(Integer::intValue).toArray(),
                others.stream().map(names::get).toArray(String[]::new));
    }

    /** The same as `column_key` in spec/schema.py. */
    private static String folded(String name) {
        return name.toUpperCase(Locale.ROOT).toLowerCase(Locale.ROOT).replace("i\u0307", "i")
                .replace('\u03c2', '\u03c3');
    }

    private Format format() {
        Format current = format;
        if (current == null) {
            current = format = new Format(options);
        }
        return current;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Headed that && columns.equals(that.columns) && options.equals(that.options)
                && heads.equals(that.heads) && files.equals(that.files);
    }

    @Override
    public int hashCode() {
        return Objects.hash(columns, options, heads, files);
    }

    @Override
    public String toString() {
        return "penstock_csv";
    }
}
