package penstock.json;

import com.fasterxml.jackson.core.Base64Variants;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.function.Function;
import java.util.function.LongFunction;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** Values that hold no others. */
final class Scalars {
  static final long FIRST = microseconds(LocalDateTime.of(1, 1, 1, 0, 0));
  static final long LAST = microseconds(LocalDateTime.of(10000, 1, 1, 0, 0)) - 1;
  private static final Pattern A_DATE = Pattern.compile("[+-]?[0-9]{4,}-[0-9]{1,2}.*", Pattern.DOTALL);
  private static final int LENGTH_OF_A_DATE = 10;

  private Scalars() {}

  static Values of(DataType type, ZoneId zone) {
    if (type instanceof DecimalType decimal) {
      return new Decimals(decimal);
    }
    return switch (type.typeName()) {
      case "boolean" -> record -> bool(record, type);
      case "byte" -> integers(type, Byte.MIN_VALUE, Byte.MAX_VALUE, value -> (byte) value);
      case "short" -> integers(type, Short.MIN_VALUE, Short.MAX_VALUE, value -> (short) value);
      case "integer" -> integers(type, Integer.MIN_VALUE, Integer.MAX_VALUE, value -> (int) value);
      case "long" -> integers(type, Long.MIN_VALUE, Long.MAX_VALUE, value -> value);
      case "float" -> record -> single(record, type);
      case "double" -> record -> real(record, type);
      case "string" -> record -> record.parser.currentToken().isStructStart() ? record.wrong(type) : record.text();
      case "binary" -> record -> binary(record, type);
      case "date" -> times(type, Scalars::date);
      case "timestamp" -> times(type, text -> moment(text, DateTimeUtils.stringToTimestamp(text, zone)));
      case "timestamp_ntz" ->
          times(type, text -> moment(text, DateTimeUtils.stringToTimestampWithoutTimeZone(text, true)));
      default -> throw new IllegalArgumentException("no JSON value is of type " + type.sql());
    };
  }

  private static Object bool(Record record, DataType type) throws IOException {
    JsonToken token = record.parser.currentToken();
    return token.isBoolean() ? (Object) (token == JsonToken.VALUE_TRUE) : record.wrong(type);
  }

  private static Values integers(DataType type, long least, long most, LongFunction<Object> as) {
    return record -> {
      JsonToken token = record.parser.currentToken();
      if (!token.isNumeric()) {
        return record.wrong(type);
      }
      if (token != JsonToken.VALUE_NUMBER_INT || record.parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
        return record.unfit(type);
      }
      long value = record.parser.getLongValue();
      return least <= value && value <= most ? as.apply(value) : record.unfit(type);
    };
  }

  private static Object single(Record record, DataType type) throws IOException {
    if (!record.parser.currentToken().isNumeric()) {
      return record.wrong(type);
    }
    float value = Float.parseFloat(record.parser.getText());
    return Float.isInfinite(value) ? record.unfit(type) : (Object) value;
  }

  private static Object real(Record record, DataType type) throws IOException {
    if (!record.parser.currentToken().isNumeric()) {
      return record.wrong(type);
    }
    double value = Double.parseDouble(record.parser.getText());
    return Double.isInfinite(value) ? record.unfit(type) : (Object) value;
  }

  private static Object binary(Record record, DataType type) throws IOException {
    if (record.parser.currentToken() != JsonToken.VALUE_STRING) {
      return record.wrong(type);
    }
    try {
      return Base64Variants.MIME_NO_LINEFEEDS.decode(record.parser.getText());
    } catch (IllegalArgumentException notBase64) {
      return record.wrong(type);
    }
  }

  private static Values times(DataType type, Function<UTF8String, Object> as) {
    return record -> {
      if (record.parser.currentToken() != JsonToken.VALUE_STRING) {
        return record.wrong(type);
      }
      UTF8String text = record.text();
      Object value = as.apply(text);
      if (value != null) {
        return value;
      }
      return A_DATE.matcher(text.toString()).matches() ? record.unfit(type) : record.wrong(type);
    };
  }

  static Object date(UTF8String text) {
    Option<Object> days = DateTimeUtils.stringToDate(text);
    return days.isEmpty() || text.numBytes() != LENGTH_OF_A_DATE ? null : days.get();
  }

  /** A time without its date would be taken for today's; other systems cannot hold one of the year 10000. */
  private static Object moment(UTF8String text, Option<Object> found) {
    if (found.isEmpty() || text.numBytes() < 5 || text.getByte(4) != '-') {
      return null;
    }
    long value = (Long) found.get();
    return FIRST <= value && value <= LAST ? value : null;
  }

  private static long microseconds(LocalDateTime time) {
    return ChronoUnit.MICROS.between(LocalDateTime.ofEpochSecond(0, 0, ZoneOffset.UTC), time);
  }
}
