package penstock.json;

import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The position of a change in the order in which its database made the changes, as text that sorts in that order, for
 * Envelope. Every number in it has the same length, in hexadecimal.
 *
 * PostgreSQL: commit.kind.lsn. `commit` is the end of the transaction that was committed last before this one
 * (source.sequence), so transactions are in the order of their commits, which is not that of their first writes; within
 * one, changes are in the order of the log. `kind` is 0 for a row read by a snapshot and 1 for a change: what follows a
 * snapshot is decoded from the same commit on, though it may come before the snapshot in the log. A snapshot of a new
 * slot knows no commit: the place at which it was taken is used instead. So is the place of a change without a commit,
 * the first after such a snapshot.
 * MySQL, MariaDB: number of the binlog's file, position, kind, row within the event.
 * SQL Server, Db2, Informix: commit_lsn, kind, change_lsn, event_serial_no. Oracle: commit_scn, kind, scn, rs_id, ssn.
 * MongoDB: time of the oplog, kind, order within it. Others: the time of the change, kind.
 *
 * An event that the connector sends again has the same position.
 */
final class Position {
    static final Set<String> NEEDED = Set.of("connector", "ts_ms", "ts_us", "lsn", "sequence", "file", "pos", "row",
            "commit_lsn", "change_lsn", "event_serial_no", "scn", "commit_scn", "rs_id", "ssn", "ord");
    private static final Pattern FIRST_OF_TWO = Pattern.compile("\\s*\\[\\s*\"([0-9]+)\"\\s*,.*", Pattern.DOTALL);
    private static final Pattern NUMBERED = Pattern.compile(".*?([0-9]{1,18})");

    private Position() {}

    /** `source` has those fields of NEEDED that the event has. A Fault if one that its connector needs is missing. */
    static String of(Map<String, String> source, String op, long micros) {
        String kind = op.equals("r") ? ".0" : ".1";
        return switch (source.getOrDefault("connector", "")) {
            case "postgresql" -> {
                String lsn = number(source, "lsn");
                Matcher commit = FIRST_OF_TWO.matcher(source.getOrDefault("sequence", ""));
                yield (commit.matches() ? number("sequence", commit.group(1)) : lsn) + kind + "." + lsn;
            }
            case "mysql", "mariadb" -> {
                Matcher file = NUMBERED.matcher(needed(source, "file"));
                if (!file.matches()) {
                    throw missing("file");
                }
                yield number("file", file.group(1)) + "." + number(source, "pos") + kind + "."
                        + optional(source, "row");
            }
            case "sqlserver", "db2", "informix" -> text(needed(source, "commit_lsn")) + kind + "."
                    + text(source.getOrDefault("change_lsn", "")) + "." + optional(source, "event_serial_no");
            case "oracle" -> text(source.containsKey("commit_scn") ? source.get("commit_scn") : needed(source, "scn"))
                    + kind + "." + text(source.getOrDefault("scn", "")) + "."
                    + source.getOrDefault("rs_id", "").trim() + "." + optional(source, "ssn");
            case "mongodb" -> number(source, "ts_ms") + kind + "." + optional(source, "ord");
            default -> hex(micros) + kind;
        };
    }

    private static String needed(Map<String, String> source, String name) {
        String value = source.get(name);
        if (value == null) {
            throw missing(name);
        }
        return value;
    }

    private static String number(Map<String, String> source, String name) {
        return number(name, needed(source, name));
    }

    private static String optional(Map<String, String> source, String name) {
        return source.containsKey(name) ? number(source, name) : hex(0);
    }

    private static String number(String name, String text) {
        try {
            return hex(Long.parseLong(text));
        } catch (NumberFormatException notANumber) {
            throw new Fault("no_position", "source." + name + ": " + text + " is not a whole number");
        }
    }

    /** Pads digits to their common length; other texts have it already. */
    private static String text(String value) {
        boolean isNumber = !value.isEmpty() && value.chars().allMatch(digit -> digit >= '0' && digit <= '9');
        return isNumber ? "0".repeat(Math.max(0, 20 - value.length())) + value : value.toLowerCase(Locale.ROOT);
    }

    /** A minus sign sorts before all digits, and the digits of negative numbers sort as the numbers do. */
    private static String hex(long value) {
        String digits = Long.toHexString(value);
        return value < 0 ? "-" + digits : "0".repeat(16 - digits.length()) + digits;
    }

    private static Fault missing(String name) {
        return new Fault(
                "no_position", "source." + name + " is missing: it says where in the database's log a change is");
    }
}
