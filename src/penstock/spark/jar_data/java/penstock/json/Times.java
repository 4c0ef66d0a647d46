package penstock.json;

import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneRules;
import java.util.List;

/**
 * Reads dates and times in ISO 8601, of the years 0001 to 9999, as other systems have no others; chosen by Texts.
 * Spark's own reader takes years of six digits, drops nanoseconds, and reads a date from whatever begins like one.
 */
final class Times implements Texts {
    /** The first and the last moment, in microseconds. */
    static final long FIRST = days(1, 1, 1) * 86_400_000_000L;
    static final long LAST = days(10000, 1, 1) * 86_400_000_000L - 1;
    private static final long NO_DAY = Long.MIN_VALUE;
    private static final int DATE = 10, MINUTES = 16, MOST_DECIMALS = 9, MICROS = 6, FURTHEST_OFFSET = 18 * 3600;
    private static final int[] DAYS = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    private final ZoneRules rules;
    private final int fixed;

    /**
     * For TIMESTAMP: values without an offset are local to the zone. Without a zone, for TIMESTAMP_NTZ: values have no
     * offset.
     */
    Times(ZoneId zone) {
        rules = zone == null ? null : zone.getRules();
        fixed = rules != null && rules.isFixedOffset() ? rules.getOffset(LocalDateTime.MIN).getTotalSeconds() : 0;
    }

    static Object date(char[] text, int from, int to) {
        long day = to - from == DATE ? day(text, from) : NO_DAY;
        return day != NO_DAY ? (Object) (int) day : beginsLikeADate(text, from, to);
    }

    @Override
    public Object read(char[] text, int from, int to) {
        long day = to - from >= DATE ? day(text, from) : NO_DAY;
        if (day == NO_DAY) {
            return beginsLikeADate(text, from, to);
        }
        if (to - from == DATE) {
            return moment(day * 86_400, 0);
        }
        char between = text[from + DATE];
        if (to - from < MINUTES || between != 'T' && between != 't' && between != ' ' || text[from + 13] != ':') {
            return UNFIT;
        }
        int hour = two(text, from + 11), minute = two(text, from + 14), second = 0;
        int at = from + MINUTES, micros = 0;
        if (at < to && text[at] == ':') {
            second = at + 3 <= to ? two(text, at + 1) : -1;
            at += 3;
            if (second >= 0 && at < to && text[at] == '.') {
                int start = ++at;
                for (; at < to && text[at] >= '0' && text[at] <= '9'; at++) {
                    if (at - start < MICROS) {
                        micros = micros * 10 + (text[at] - '0');
                    } else if (text[at] != '0' || at - start >= MOST_DECIMALS) {
                        return UNFIT; // a microsecond is the smallest unit of the type
                    }
                }
                if (at == start) {
                    return UNFIT;
                }
                for (int i = at - start; i < MICROS; i++) {
                    micros *= 10;
                }
            }
        }
        if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
            return UNFIT;
        }
        long seconds = day * 86_400 + hour * 3_600 + minute * 60 + second;
        if (at >= to) {
            return moment(seconds, micros);
        }
        int offset = offset(text, at, to);
        return rules == null || offset == Integer.MIN_VALUE ? UNFIT : bounded(seconds - offset, micros);
    }

    /** The value of a local time. */
    private Object moment(long seconds, int micros) {
        if (rules == null || rules.isFixedOffset()) {
            return bounded(seconds - fixed, micros);
        }
        List<ZoneOffset> valid = rules.getValidOffsets(LocalDateTime.ofEpochSecond(seconds, 0, ZoneOffset.UTC));
        // A clock that is set forward skips times; of an hour that it repeats, the first is meant.
        return valid.isEmpty() ? UNFIT : bounded(seconds - valid.get(0).getTotalSeconds(), micros);
    }

    private static Object bounded(long seconds, int micros) {
        long value = seconds * 1_000_000 + micros;
        return FIRST <= value && value <= LAST ? (Object) value : UNFIT;
    }

    /** The offset in seconds, from Z, +hh, +hhmm or +hh:mm; Integer.MIN_VALUE if it is not valid. */
    private static int offset(char[] text, int at, int to) {
        char sign = text[at];
        int length = to - at;
        if (length == 1 && (sign == 'Z' || sign == 'z')) {
            return 0;
        }
        if (sign != '+' && sign != '-' || length != 3 && length != 5 && !(length == 6 && text[at + 3] == ':')) {
            return Integer.MIN_VALUE;
        }
        int hours = two(text, at + 1), minutes = length == 3 ? 0 : two(text, to - 2);
        int seconds = hours * 3_600 + minutes * 60;
        if (hours < 0 || minutes < 0 || minutes > 59 || seconds > FURTHEST_OFFSET) {
            return Integer.MIN_VALUE;
        }
        return sign == '-' ? -seconds : seconds;
    }

    /** The days since 1970 of the yyyy-MM-dd at `at`, or NO_DAY; the text is long enough. */
    private static long day(char[] text, int at) {
        int century = two(text, at), years = two(text, at + 2), month = two(text, at + 5), day = two(text, at + 8);
        if (century < 0 || years < 0 || month < 1 || month > 12 || day < 1 || text[at + 4] != '-'
                || text[at + 7] != '-') {
            return NO_DAY;
        }
        int year = century * 100 + years;
        boolean leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        int last = month == 2 && leap ? 29 : DAYS[month - 1];
        return year < 1 || day > last ? NO_DAY : days(year, month, day);
    }

    /** Two digits, or -1. */
    private static int two(char[] text, int at) {
        int tens = text[at] - '0', ones = text[at + 1] - '0';
        return tens < 0 || tens > 9 || ones < 0 || ones > 9 ? -1 : tens * 10 + ones;
    }

    /** Years are counted from March here, so that a leap day is the last of its year. */
    private static long days(int year, int month, int day) {
        int years = month < 3 ? year - 1 : year;
        long leapDays = years / 4 - years / 100 + years / 400;
        int ofYear = (153 * (month < 3 ? month + 9 : month - 3) + 2) / 5 + day - 1;
        return years * 365L + leapDays + ofYear - 719_468;
    }

    /** UNFIT if the text begins with a year and a month: a date was meant, though not a possible one. */
    private static Object beginsLikeADate(char[] text, int from, int to) {
        int at = from < to && (text[from] == '+' || text[from] == '-') ? from + 1 : from;
        int start = at;
        while (at < to && text[at] >= '0' && text[at] <= '9') {
            at++;
        }
        boolean month = at + 1 < to && text[at] == '-' && text[at + 1] >= '0' && text[at + 1] <= '9';
        return at - start >= 4 && month ? UNFIT : WRONG;
    }
}
