package penstock.jdbc;

import java.math.BigDecimal;
import java.sql.Date;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Calendar;
import java.util.GregorianCalendar;
import java.util.TimeZone;
import org.apache.spark.sql.Row;

/**
 * A column that a sink sends, created by sinks/jdbc.py. Dates come as days and timestamps as microseconds since 1970:
 * Java's old classes for both depend on the time zone of the machine.
 */
public final class Column {
    private static final long MICROS = 1_000_000L;

    final String name;
    final String kind;
    final int precision;
    final int scale;
    final boolean key;

    public Column(String name, String kind, int precision, int scale, boolean key) {
        this.name = name;
        this.kind = kind;
        this.precision = precision;
        this.scale = scale;
        this.key = key;
    }

    void bind(PreparedStatement statement, int at, Row row, int from, Dialect dialect) throws SQLException {
        if (row.isNullAt(from)) {
            statement.setNull(at, dialect == Dialect.POSTGRES ? Types.NULL : sqlType());
            return;
        }
        switch (kind) {
            case "int" -> statement.setInt(at, row.getInt(from));
            case "long" -> statement.setLong(at, row.getLong(from));
            case "float" -> statement.setFloat(at, row.getFloat(from));
            case "double" -> statement.setDouble(at, row.getDouble(from));
            case "decimal" -> statement.setBigDecimal(at, (BigDecimal) row.get(from));
            case "boolean" -> statement.setBoolean(at, row.getBoolean(from));
            case "binary" -> statement.setBytes(at, (byte[]) row.get(from));
            case "date" -> date(statement, at, LocalDate.ofEpochDay(row.getInt(from)), dialect);
            case "timestamp" -> time(statement, at, row.getLong(from), dialect);
            case "local" -> local(statement, at, LocalDateTime.parse(row.getString(from).replace(' ', 'T')), dialect);
            default -> statement.setString(at, row.getString(from));
        }
    }

    private static void date(PreparedStatement statement, int at, LocalDate day, Dialect dialect)
            throws SQLException {
        if (dialect == Dialect.POSTGRES) {
            statement.setObject(at, day);
        } else {
            statement.setDate(at, Date.valueOf(day));
        }
    }

    private static void time(PreparedStatement statement, int at, long micros, Dialect dialect)
            throws SQLException {
        long seconds = Math.floorDiv(micros, MICROS);
        Instant instant = Instant.ofEpochSecond(seconds, Math.floorMod(micros, MICROS) * 1000);
        if (dialect == Dialect.POSTGRES) {
            statement.setObject(at, instant.atOffset(ZoneOffset.UTC));
        } else {
            statement.setTimestamp(at, Timestamp.from(instant), utc());
        }
    }

    private static void local(PreparedStatement statement, int at, LocalDateTime time, Dialect dialect)
            throws SQLException {
        if (dialect == Dialect.POSTGRES) {
            statement.setObject(at, time);
        } else {
            statement.setTimestamp(at, Timestamp.from(time.toInstant(ZoneOffset.UTC)), utc());
        }
    }

    private static Calendar utc() {
        GregorianCalendar calendar = new GregorianCalendar(TimeZone.getTimeZone("UTC"));
        calendar.setGregorianChange(new java.util.Date(Long.MIN_VALUE));
        return calendar;
    }

    private int sqlType() {
        return switch (kind) {
            case "int" -> Types.INTEGER;
            case "long" -> Types.BIGINT;
            case "float" -> Types.REAL;
            case "double" -> Types.DOUBLE;
            case "decimal" -> Types.DECIMAL;
            case "boolean" -> Types.BOOLEAN;
            case "binary" -> Types.VARBINARY;
            case "date" -> Types.DATE;
            case "timestamp", "local" -> Types.TIMESTAMP;
            default -> Types.VARCHAR;
        };
    }
}
