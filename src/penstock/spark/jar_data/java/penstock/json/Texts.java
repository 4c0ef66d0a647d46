package penstock.json;

import java.time.ZoneId;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

/**
 * The rule of one type: which texts it accepts, and as which value. Every format uses it (docs/types.md), so a value
 * means the same wherever it is written. It reads exactly or refuses, and never throws.
 */
interface Texts {
    /** The text is of another type. */
    Object WRONG = new Object();
    /** The text is of the kind of the type, which cannot hold it. */
    Object UNFIT = new Object();

    /** The value as Spark holds it, or WRONG, or UNFIT. The text is [from, to). */
    Object read(char[] text, int from, int to);

    /** The rule of a type that is read alike in every format: neither BOOLEAN nor STRING. */
    static Texts of(DataType type, ZoneId zone) {
        if (type instanceof DecimalType decimal) {
            return new Decimals(decimal);
        }
        return switch (type.typeName()) {
            case "byte" -> Numbers.integers(Byte.MIN_VALUE, Byte.MAX_VALUE, value -> (byte) value);
            case "short" -> Numbers.integers(Short.MIN_VALUE, Short.MAX_VALUE, value -> (short) value);
            case "integer" -> Numbers.integers(Integer.MIN_VALUE, Integer.MAX_VALUE, value -> (int) value);
            case "long" -> Numbers.integers(Long.MIN_VALUE, Long.MAX_VALUE, value -> value);
            case "float" -> Numbers::single;
            case "double" -> Numbers::real;
            case "binary" -> Bytes::read;
            case "date" -> Times::date;
            case "timestamp" -> new Times(zone);
            case "timestamp_ntz" -> new Times(null);
            default -> throw new IllegalArgumentException("no value is of type " + type.sql());
        };
    }
}
