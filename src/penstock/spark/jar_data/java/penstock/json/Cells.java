package penstock.json;

import java.io.Serializable;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Converts the text fields of a line into typed columns, by Decoder's rules and as exactly. Called by formats/csv.py.
 */
public final class Cells implements Serializable {
    private static final int SHOWN = 80;

    private final String ddl;
    private final String zone;
    private transient volatile Readers readers;

    private Cells(String ddl, String zone) {
        this.ddl = ddl;
        this.zone = zone;
    }

    /** `fields`: a struct that begins with a text for each column of the schema. NULL means a struct of NULLs. */
    public static Column column(Column fields, String ddl, String zone) {
        StructType columns = StructType.fromDDL(ddl).asNullable()
                .add(Decoder.REASON, DataTypes.StringType).add(Decoder.DETAIL, DataTypes.StringType);
        Cells cells = new Cells(ddl, zone);
        cells.readers(); // an invalid type or time zone is not the fault of a record
        Expression self = Literal.fromObject(cells, new ObjectType(Cells.class));
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(fields))).toSeq();
        var types = CollectionConverters.asScala(List.<org.apache.spark.sql.types.AbstractDataType>of()).toSeq();
        return ExpressionUtils.column(new Invoke(self, "decode", columns, arguments, types, false, false, true));
    }

    /** Never null. */
    public InternalRow decode(InternalRow texts) {
        Readers current = readers();
        int width = current.names.length;
        Object[] row = new Object[width + 2];
        for (int i = 0; texts != null && i < width; i++) {
            try {
                UTF8String text = texts.isNullAt(i) ? null : texts.getUTF8String(i);
                if (text != null && current.rules[i] != null && isBlank(text)) {
                    // a cell of blanks, or an empty one in quotes, is a value for STRING; for any other type it is NULL
                    text = null;
                }
                row[i] = text == null ? null : current.rules[i] == null ? text : read(current.rules[i], text);
                if (row[i] == Texts.WRONG || row[i] == Texts.UNFIT) {
                    row[i] = null;
                    return Decoder.faulty(row, new Fault("wrong_type", current.names[i] + ": "
                            + Shown.of(text.toString(), SHOWN) + " does not fit " + current.types[i].sql()));
                }
                if (text == null && current.required[i]) {
                    return Decoder.faulty(row, new Fault("missing_field", current.names[i] + " is missing or null"));
                }
            } catch (RuntimeException | StackOverflowError error) {
                return Decoder.faulty(row, Decoder.failed(error, current.names[i]));
            }
        }
        return new GenericInternalRow(row);
    }

    /** Ignores blanks around the value. No rule accepts letters beyond ASCII. */
    private static Object read(Texts rule, UTF8String text) {
        char[] letters = letters(text);
        return rule.read(letters, 0, letters.length);
    }

    private static boolean isBlank(UTF8String text) {
        for (int i = 0; i < text.numBytes(); i++) {
            if (text.getByte(i) != ' ' && text.getByte(i) != '\t') {
                return false;
            }
        }
        return true;
    }

    /** The letters of the text, without the blanks around it. */
    static char[] letters(UTF8String text) {
        byte[] bytes = text.getBytes();
        int from = 0, to = bytes.length;
        while (from < to && (bytes[from] == ' ' || bytes[from] == '\t')) {
            from++;
        }
        while (from < to && (bytes[to - 1] == ' ' || bytes[to - 1] == '\t')) {
            to--;
        }
        char[] letters = new char[to - from];
        for (int i = from; i < to; i++) {
            letters[i - from] = (char) (bytes[i] & 0xFF);
        }
        return letters;
    }

    /** In upper or lower case. */
    private static Object bool(char[] text, int from, int to) {
        return to - from > 5 ? Texts.WRONG
                : switch (new String(text, from, to - from).toLowerCase(java.util.Locale.ROOT)) {
            case "true", "t", "yes", "y", "1" -> true;
            case "false", "f", "no", "n", "0" -> false;
            default -> Texts.WRONG;
        };
    }

    private record Readers(String[] names, DataType[] types, boolean[] required, Texts[] rules) {}

    private Readers readers() {
        Readers current = readers;
        if (current == null) {
            StructField[] fields = StructType.fromDDL(ddl).fields();
            int width = fields.length;
            current = new Readers(new String[width], new DataType[width], new boolean[width], new Texts[width]);
            for (int i = 0; i < width; i++) {
                DataType type = fields[i].dataType();
                current.names[i] = fields[i].name();
                current.types[i] = type;
                current.required[i] = !fields[i].nullable();
                current.rules[i] = type instanceof StringType ? null
                        : type.equals(DataTypes.BooleanType) ? Cells::bool
                        : Texts.of(type, DateTimeUtils.getZoneId(zone));
            }
            readers = current;
        }
        return current;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Cells that && ddl.equals(that.ddl) && zone.equals(that.zone);
    }

    @Override
    public int hashCode() {
        return Objects.hash(ddl, zone);
    }

    @Override
    public String toString() {
        return "penstock_cells";
    }
}
