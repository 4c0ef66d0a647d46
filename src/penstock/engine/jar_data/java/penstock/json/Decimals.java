package penstock.json;

import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/** Decimals, never rounded: from numbers, and from texts, as which many systems send them. */
final class Decimals implements Values {
  private static final int LONGEST = 1000;
  private static final int DIGITS_OF_A_LONG = 18;
  private static final long[] TENS = new long[DIGITS_OF_A_LONG + 1];

  static {
    TENS[0] = 1;
    for (int i = 1; i < TENS.length; i++) {
      TENS[i] = TENS[i - 1] * 10;
    }
  }

  private final DecimalType type;
  private final int precision;
  private final int scale;

  Decimals(DecimalType type) {
    this.type = type;
    precision = type.precision();
    scale = type.scale();
  }

  @Override
  public Object read(Record record) throws IOException {
    JsonToken token = record.parser.currentToken();
    if (!token.isNumeric() && token != JsonToken.VALUE_STRING) {
      return record.wrong(type);
    }
    char[] text = record.parser.getTextCharacters();
    int from = record.parser.getTextOffset(), length = record.parser.getTextLength();
    Decimal plain = plain(text, from, length);
    if (plain != null) {
      return plain;
    }
    if (!token.isNumeric() && !isNumber(text, from, length)) {
      return record.wrong(type);
    }
    Decimal exact = length > LONGEST ? null : exact(new String(text, from, length));
    return exact != null ? exact : record.unfit(type);
  }

  /** Of digits with a point, as nearly all are written; null if it takes more than that. */
  private Decimal plain(char[] text, int from, int length) {
    if (length == 0 || length > DIGITS_OF_A_LONG || precision > DIGITS_OF_A_LONG) {
      return null;
    }
    boolean negative = text[from] == '-';
    long value = 0;
    int digits = 0, behind = -1;
    for (int i = from + (negative ? 1 : 0); i < from + length; i++) {
      char one = text[i];
      if (one == '.' && behind < 0 && digits > 0) {
        behind = 0;
      } else if (one >= '0' && one <= '9') {
        value = value * 10 + (one - '0');
        digits++;
        behind = behind < 0 ? behind : behind + 1;
      } else {
        return null;
      }
    }
    int missing = scale - Math.max(behind, 0);
    if (digits == 0 || behind == 0 || missing < 0 || value >= TENS[precision - missing]) {
      return null;
    }
    value *= TENS[missing];
    return Decimal.createUnsafe(negative ? -value : value, precision, scale);
  }

  private Decimal exact(String text) {
    try {
      return exact(new BigDecimal(text));
    } catch (NumberFormatException beyondEveryExponent) {
      return null;
    }
  }

  /** Null if it does not fit. */
  Decimal exact(BigDecimal value) {
    if (value.signum() == 0) {
      return Decimal.apply(BigDecimal.ZERO.setScale(scale), precision, scale);
    }
    value = value.stripTrailingZeros();
    boolean fits = value.scale() <= scale && (long) value.precision() - value.scale() <= precision - scale;
    return fits ? Decimal.apply(value.setScale(scale), precision, scale) : null;
  }

  /** By the grammar of JSON, with a plus sign or zeros before it if it likes. */
  private static boolean isNumber(char[] text, int from, int length) {
    int at = from, end = from + length;
    if (at < end && (text[at] == '-' || text[at] == '+')) {
      at++;
    }
    int whole = digits(text, at, end);
    at += whole;
    int behind = 0;
    if (at < end && text[at] == '.') {
      behind = digits(text, ++at, end);
      at += behind;
    }
    if (whole + behind == 0) {
      return false;
    }
    if (at < end && (text[at] == 'e' || text[at] == 'E')) {
      at += at + 1 < end && (text[at + 1] == '-' || text[at + 1] == '+') ? 2 : 1;
      int exponent = digits(text, at, end);
      at += exponent;
      return exponent > 0 && at == end;
    }
    return at == end;
  }

  private static int digits(char[] text, int from, int end) {
    int at = from;
    while (at < end && text[at] >= '0' && text[at] <= '9') {
      at++;
    }
    return at - from;
  }
}
