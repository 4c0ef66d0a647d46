package penstock.jdbc;

import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** What differs between databases, for Table and Rows: types, and how a row is inserted or updated. */
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

    /** One statement that inserts or updates, or null if there is none. Values come in the order of the columns. */
    String upsert(String table, List<String> columns, List<String> keys) {
        String insert = insert(table, columns);
        List<String> rest = columns.stream().filter(column -> !keys.contains(column)).toList();
        return switch (this) {
            case POSTGRES, SQLITE -> insert + " ON CONFLICT (" + String.join(", ", keys) + ") DO " + (rest.isEmpty()
                    ? "NOTHING"
                    : "UPDATE SET "
                            + rest.stream().map(column -> column + " = EXCLUDED." + column)
                                    .collect(Collectors.joining(", ")));
            case MYSQL -> insert + " ON DUPLICATE KEY UPDATE "
                    + columns.stream().map(column -> column + " = VALUES(" + column + ")")
                            .collect(Collectors.joining(", "));
            case OTHER -> null;
        };
    }

    static String insert(String table, List<String> columns) {
        String placeholders = columns.stream().map(column -> "?").collect(Collectors.joining(", "));
        return "INSERT INTO " + table + " (" + String.join(", ", columns) + ") VALUES (" + placeholders + ")";
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
