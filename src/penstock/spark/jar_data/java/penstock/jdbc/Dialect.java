package penstock.jdbc;

import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** What databases say in words of their own: types, and how a row is put whether or not its key is there. */
enum Dialect {
    POSTGRES,
    SQLITE,
    MYSQL,
    /** Any other: a row is updated, and inserted if there was none. */
    OTHER;

    static Dialect of(String product) {
        String name = product.toLowerCase(Locale.ROOT);
        if (name.contains("postgres")) {
            return POSTGRES;
        }
        if (name.contains("sqlite")) {
            return SQLITE;
        }
        return name.contains("mysql") || name.contains("mariadb") ? MYSQL : OTHER;
    }

    /** One statement that inserts or updates; null: there is none. Values come in the order of the columns. */
    String upsert(String table, List<String> columns, List<String> keys) {
        String insert = insert(table, columns);
        List<String> rest = columns.stream().filter(one -> !keys.contains(one)).toList();
        return switch (this) {
            case POSTGRES, SQLITE -> insert + " ON CONFLICT (" + String.join(", ", keys) + ") DO " + (rest.isEmpty()
                    ? "NOTHING"
                    : "UPDATE SET "
                            + rest.stream().map(one -> one + " = EXCLUDED." + one).collect(Collectors.joining(", ")));
            case MYSQL -> insert + " ON DUPLICATE KEY UPDATE "
                    + columns.stream().map(one -> one + " = VALUES(" + one + ")").collect(Collectors.joining(", "));
            case OTHER -> null;
        };
    }

    static String insert(String table, List<String> columns) {
        String marks = columns.stream().map(one -> "?").collect(Collectors.joining(", "));
        return "INSERT INTO " + table + " (" + String.join(", ", columns) + ") VALUES (" + marks + ")";
    }

    String type(Column column) {
        if (column.kind.equals("decimal")) {
            return (this == POSTGRES ? "NUMERIC(" : "DECIMAL(") + column.precision + ", " + column.scale + ")";
        }
        return switch (column.kind) {
            case "int" -> "INTEGER";
            case "long" -> "BIGINT";
            case "float" -> this == MYSQL ? "FLOAT" : "REAL";
            case "double" -> "DOUBLE PRECISION";
            case "boolean" -> "BOOLEAN";
            case "date" -> "DATE";
            case "timestamp" -> choose("TIMESTAMP WITH TIME ZONE", "DATETIME(6)", "TIMESTAMP");
            case "local" -> choose("TIMESTAMP", "DATETIME(6)", "TIMESTAMP");
            case "binary" -> choose("BYTEA", column.key ? "VARBINARY(255)" : "LONGBLOB", "BLOB");
            case "json" -> choose("JSONB", "JSON", text());
            default -> column.key && (this == MYSQL || this == OTHER) ? "VARCHAR(255)" : text();
        };
    }

    String text() {
        return switch (this) {
            case POSTGRES, SQLITE -> "TEXT";
            case MYSQL -> "LONGTEXT";
            case OTHER -> "CLOB";
        };
    }

    private String choose(String postgres, String mysql, String other) {
        return this == POSTGRES ? postgres : this == MYSQL ? mysql : other;
    }
}
