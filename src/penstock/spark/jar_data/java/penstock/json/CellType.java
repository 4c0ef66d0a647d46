package penstock.json;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Infers the type of a CSV column from its cells, for Sample. Each cell is tried with the rules that decode it later,
 * so the type accepts every cell that was read. The result does not depend on how the cells are divided.
 */
public final class CellType implements Serializable {
    private static final int MOST_DIGITS = 38;
    private static final Texts LONG = Texts.of(DataTypes.LongType, null);
    private static final Texts DOUBLE = Texts.of(DataTypes.DoubleType, null);
    private static final Texts DATE = Texts.of(DataTypes.DateType, null);

    private final String zone;
    private transient Texts times;
    private boolean text, truth, whole, fraction, date, time;
    private boolean beyondLong, beyondDouble;
    private long before = 1, behind; // the most digits on either side of the point

    public CellType(String zone) {
        this.zone = zone;
    }

    /** Neither blanks nor NULL are a value. */
    public void add(UTF8String cell) {
        if (cell == null || text) {
            return;
        }
        char[] letters = Cells.letters(cell);
        int length = letters.length;
        if (length == 0) {
            return;
        }
        Written number = Written.of(letters, 0, length);
        if (number != null) {
            number(number, letters);
        } else if (isValue(DATE, letters)) {
            date = true;
        } else if (isValue(times(), letters)) {
            time = true;
        } else {
            String word = length > 5 ? "" : new String(letters).toLowerCase(java.util.Locale.ROOT);
            truth |= word.equals("true") || word.equals("false");
            text |= !word.equals("true") && !word.equals("false");
        }
    }

    /** A number with leading zeros is a code, and text. */
    private void number(Written number, char[] letters) {
        int at = letters[0] == '-' || letters[0] == '+' ? 1 : 0;
        text |= letters.length > at + 1 && letters[at] == '0' && letters[at + 1] >= '0' && letters[at + 1] <= '9';
        boolean isWhole = true;
        for (char letter : letters) {
            isWhole &= letter != '.' && letter != 'e' && letter != 'E';
        }
        whole |= isWhole;
        fraction |= !isWhole;
        beyondLong |= !isValue(LONG, letters);
        beyondDouble |= !isValue(DOUBLE, letters);
        if (number.digits > 0) {
            before = Math.max(before, number.digits + number.exponent);
            behind = Math.max(behind, -number.exponent);
        }
    }

    private static boolean isValue(Texts rule, char[] letters) {
        Object value = rule.read(letters, 0, letters.length);
        return value != Texts.WRONG && value != Texts.UNFIT;
    }

    private Texts times() {
        if (times == null) {
            times = Texts.of(DataTypes.TimestampType, DateTimeUtils.getZoneId(zone));
        }
        return times;
    }

    public void merge(CellType other) {
        text |= other.text;
        truth |= other.truth;
        whole |= other.whole;
        fraction |= other.fraction;
        date |= other.date;
        time |= other.time;
        beyondLong |= other.beyondLong;
        beyondDouble |= other.beyondDouble;
        before = Math.max(before, other.before);
        behind = Math.max(behind, other.behind);
    }

    /** The type in DDL; void if there was no value. Cells of several kinds are text. */
    public String type() {
        int kinds = (truth ? 1 : 0) + (whole || fraction ? 1 : 0) + (date ? 1 : 0) + (time ? 1 : 0);
        if (text || kinds > 1) {
            return "string";
        }
        if (kinds == 0) {
            return "void";
        }
        return truth ? "boolean" : date ? "date" : time ? "timestamp" : number();
    }

    /** As for JSON: whole numbers that a DOUBLE would round are decimals. */
    private String number() {
        if (!fraction && !beyondLong) {
            return "bigint";
        }
        if (fraction && !beyondDouble) {
            return "double";
        }
        return whole && before + behind <= MOST_DIGITS ? "decimal(" + MOST_DIGITS + "," + behind + ")" : "string";
    }
}
