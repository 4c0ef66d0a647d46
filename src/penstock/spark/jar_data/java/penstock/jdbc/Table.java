package penstock.jdbc;

import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** The table that a sink writes to, for Session: where it is, and what its columns are called there. */
final class Table {
    private static final String[] KINDS = {"TABLE", "BASE TABLE", "PARTITIONED TABLE", "FOREIGN TABLE", "VIEW"};

    private final Connection connection;
    private final DatabaseMetaData about;
    private final Dialect dialect;
    private final String mark;
    private final String catalog;
    private final String schema;
    private final String written;

    Table(Connection connection, Dialect dialect, String name) throws SQLException {
        this.connection = connection;
        this.dialect = dialect;
        about = connection.getMetaData();
        String quoteString = about.getIdentifierQuoteString();
        mark = quoteString == null || quoteString.isBlank() ? "" : quoteString;
        int dot = name.indexOf('.');
        String qualifier = dot < 0 ? null : name.substring(0, dot);
        catalog = dialect == Dialect.MYSQL && qualifier != null ? qualifier : connection.getCatalog();
        schema = dialect == Dialect.MYSQL || dialect == Dialect.SQLITE ? null : qualifier == null ? own() : qualifier;
        written = name.substring(dot + 1);
    }

    private String own() {
        try {
            return connection.getSchema();
        } catch (SQLException | AbstractMethodError error) {
            return null;
        }
    }

    String quote(String name) {
        return mark.isEmpty() ? name : mark + name.replace(mark, mark + mark) + mark;
    }

    /** The name of a table in the same schema, as SQL takes it. */
    String beside(String name) {
        String outer = dialect == Dialect.MYSQL ? catalog : schema;
        return outer == null || outer.isEmpty() ? quote(name) : quote(outer) + "." + quote(name);
    }

    /** The table's name as the database spells it; null if there is no such table. */
    String find(String name) throws SQLException {
        List<String> similar = new ArrayList<>();
        try (ResultSet tables = about.getTables(catalog, schema == null ? null : escaped(schema), "%", KINDS)) {
            while (tables.next()) {
                String candidate = tables.getString("TABLE_NAME");
                if (candidate.equals(name)) {
                    return candidate;
                }
                if (candidate.equalsIgnoreCase(name)) {
                    similar.add(candidate);
                }
            }
        }
        return similar.size() == 1 ? similar.get(0) : null;
    }

    String place() throws SQLException {
        String existing = find(written);
        return beside(existing == null ? written : existing);
    }

    /**
     * The columns as SQL takes them, in the same order. Creates the table, or throws a Failure if it cannot be used.
     */
    List<String> settle(List<Column> columns, boolean create) throws SQLException, Failure {
        String tableName = find(written);
        if (tableName == null) {
            String sql = creation(columns);
            if (!create) {
                throw new Failure(
                        "there is no table " + beside(written), "make it: " + sql + ", or write create: true");
            }
            try (var statement = connection.createStatement()) {
                statement.execute(sql);
            }
            return columns.stream().map(column -> quote(column.name)).toList();
        }
        Map<String, Boolean> existing = columnsOf(tableName);
        List<String> names = new ArrayList<>();
        for (Column column : columns) {
            String name = spelled(column.name, existing.keySet());
            if (name == null) {
                String hint = "ALTER TABLE " + beside(tableName) + " ADD COLUMN " + quote(column.name) + " "
                        + dialect.type(column);
                throw new Failure(
                        "the table " + beside(tableName) + " has no column " + quote(column.name),
                        "add it: " + hint + "; or name the columns that are sent: columns: ["
                                + String.join(", ", existing.keySet()) + "]");
            }
            names.add(name);
        }
        for (var column : existing.entrySet()) {
            if (column.getValue() && !names.contains(column.getKey())) {
                throw new Failure(
                        "the column " + quote(column.getKey()) + " of " + beside(tableName)
                                + " takes no NULL, and nothing is sent for it",
                        "give it a default: ALTER TABLE " + beside(tableName) + " ALTER COLUMN "
                                + quote(column.getKey()) + " SET DEFAULT …");
            }
        }
        Set<String> keys = new HashSet<>();
        for (int i = 0; i < names.size(); i++) {
            if (columns.get(i).key) {
                keys.add(names.get(i));
            }
        }
        if (!unique(tableName, keys)) {
            String list = keys.stream().sorted().map(this::quote).collect(Collectors.joining(", "));
            throw new Failure(
                    "nothing in the table " + beside(tableName) + " keeps two rows with the same " + list + " apart",
                    "make that its key: ALTER TABLE " + beside(tableName) + " ADD PRIMARY KEY (" + list + ")");
        }
        return names.stream().map(this::quote).toList();
    }

    private String creation(List<Column> columns) {
        List<String> parts = new ArrayList<>();
        for (Column column : columns) {
            parts.add(quote(column.name) + " " + dialect.type(column) + (column.key ? " NOT NULL" : ""));
        }
        String keys = columns.stream().filter(column -> column.key).map(column -> quote(column.name))
                .collect(Collectors.joining(", "));
        return "CREATE TABLE " + beside(written) + " (" + String.join(", ", parts) + ", PRIMARY KEY (" + keys + "))";
    }

    /** Each column's name, and whether an INSERT must give it a value. */
    private Map<String, Boolean> columnsOf(String table) throws SQLException {
        Map<String, Boolean> required = new HashMap<>();
        try (ResultSet columns =
                about.getColumns(catalog, schema == null ? null : escaped(schema), escaped(table), "%")) {
            while (columns.next()) {
                boolean isNotNull = columns.getInt("NULLABLE") == DatabaseMetaData.columnNoNulls;
                boolean hasDefault = columns.getString("COLUMN_DEF") != null || yes(columns, "IS_AUTOINCREMENT")
                        || yes(columns, "IS_GENERATEDCOLUMN");
                if (table.equals(columns.getString("TABLE_NAME"))) {
                    required.put(columns.getString("COLUMN_NAME"), isNotNull && !hasDefault);
                }
            }
        }
        return required;
    }

    private static boolean yes(ResultSet columns, String name) {
        try {
            return "YES".equals(columns.getString(name));
        } catch (SQLException absent) {
            return false;
        }
    }

    private boolean unique(String table, Set<String> keys) throws SQLException {
        Map<String, Set<String>> columnsByIndex = new HashMap<>();
        try (ResultSet primary = about.getPrimaryKeys(catalog, schema, table)) {
            while (primary.next()) {
                columnsByIndex.computeIfAbsent("", name -> new HashSet<>()).add(primary.getString("COLUMN_NAME"));
            }
        }
        try (ResultSet indexes = about.getIndexInfo(catalog, schema, table, true, true)) {
            while (indexes.next()) {
                String column = indexes.getString("COLUMN_NAME");
                if (column != null && indexes.getString("FILTER_CONDITION") == null) {
                    columnsByIndex.computeIfAbsent(indexes.getString("INDEX_NAME"), name -> new HashSet<>())
                            .add(unquoted(column));
                }
            }
        }
        return columnsByIndex.containsValue(keys);
    }

    /** The name without quotes: PostgreSQL returns the columns of an index as SQL writes them. */
    private String unquoted(String name) {
        boolean quoted = name.length() > 1 && !mark.isEmpty() && name.startsWith(mark) && name.endsWith(mark);
        return quoted ? name.substring(1, name.length() - 1).replace(mark + mark, mark) : name;
    }

    private String escaped(String name) throws SQLException {
        String escape = about.getSearchStringEscape();
        if (escape == null || escape.isEmpty()) {
            return name;
        }
        return name.replace(escape, escape + escape).replace("_", escape + "_").replace("%", escape + "%");
    }

    private static String spelled(String name, Set<String> existing) {
        if (existing.contains(name)) {
            return name;
        }
        List<String> similar = existing.stream().filter(name::equalsIgnoreCase).toList();
        return similar.size() == 1 ? similar.get(0) : null;
    }
}
