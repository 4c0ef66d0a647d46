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

/** The table that is followed into: where it is, and what its columns are called there. */
final class Table {
    private static final String[] KINDS = {"TABLE", "BASE TABLE", "PARTITIONED TABLE", "FOREIGN TABLE", "VIEW"};

    private final Connection connection;
    private final DatabaseMetaData about;
    private final Dialect dialect;
    private final String mark;
    private final String catalog;
    private final String schema;
    private final String written;

    Table(Connection connection, Dialect dialect, String place) throws SQLException {
        this.connection = connection;
        this.dialect = dialect;
        about = connection.getMetaData();
        String found = about.getIdentifierQuoteString();
        mark = found == null || found.isBlank() ? "" : found;
        int dot = place.indexOf('.');
        String given = dot < 0 ? null : place.substring(0, dot);
        catalog = dialect == Dialect.MYSQL && given != null ? given : connection.getCatalog();
        schema = dialect == Dialect.MYSQL || dialect == Dialect.SQLITE ? null : given == null ? own() : given;
        written = place.substring(dot + 1);
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

    /** A name beside the table's own, as SQL takes it. */
    String beside(String name) {
        String outer = dialect == Dialect.MYSQL ? catalog : schema;
        return outer == null || outer.isEmpty() ? quote(name) : quote(outer) + "." + quote(name);
    }

    /** As the database spells it; null if it is not there. */
    String find(String name) throws SQLException {
        List<String> near = new ArrayList<>();
        try (ResultSet tables = about.getTables(catalog, schema == null ? null : escaped(schema), "%", KINDS)) {
            while (tables.next()) {
                String one = tables.getString("TABLE_NAME");
                if (one.equals(name)) {
                    return one;
                }
                if (one.equalsIgnoreCase(name)) {
                    near.add(one);
                }
            }
        }
        return near.size() == 1 ? near.get(0) : null;
    }

    String place() throws SQLException {
        String found = find(written);
        return beside(found == null ? written : found);
    }

    /** The columns as SQL takes them, in the order given. Makes the table, or says why it does not serve. */
    List<String> settle(List<Column> columns, boolean create) throws SQLException, Failure {
        String found = find(written);
        if (found == null) {
            String made = creation(columns);
            if (!create) {
                throw new Failure(
                        "there is no table " + beside(written), "make it: " + made + ", or write create: true");
            }
            try (var statement = connection.createStatement()) {
                statement.execute(made);
            }
            return columns.stream().map(one -> quote(one.name)).toList();
        }
        Map<String, Boolean> there = columnsOf(found);
        List<String> names = new ArrayList<>();
        for (Column column : columns) {
            String name = spelled(column.name, there.keySet());
            if (name == null) {
                String hint = "ALTER TABLE " + beside(found) + " ADD COLUMN " + quote(column.name) + " "
                        + dialect.type(column);
                throw new Failure(
                        "the table " + beside(found) + " has no column " + quote(column.name),
                        "add it: " + hint + "; or name the columns that are sent: columns: ["
                                + String.join(", ", there.keySet()) + "]");
            }
            names.add(name);
        }
        for (var one : there.entrySet()) {
            if (one.getValue() && !names.contains(one.getKey())) {
                throw new Failure(
                        "the column " + quote(one.getKey()) + " of " + beside(found)
                                + " takes no NULL, and nothing is sent for it",
                        "give it a default: ALTER TABLE " + beside(found) + " ALTER COLUMN " + quote(one.getKey())
                                + " SET DEFAULT …");
            }
        }
        Set<String> keys = new HashSet<>();
        for (int i = 0; i < names.size(); i++) {
            if (columns.get(i).key) {
                keys.add(names.get(i));
            }
        }
        if (!unique(found, keys)) {
            String list = keys.stream().sorted().map(this::quote).collect(Collectors.joining(", "));
            throw new Failure(
                    "nothing in the table " + beside(found) + " keeps two rows with the same " + list + " apart",
                    "make that its key: ALTER TABLE " + beside(found) + " ADD PRIMARY KEY (" + list + ")");
        }
        return names.stream().map(this::quote).toList();
    }

    private String creation(List<Column> columns) {
        List<String> parts = new ArrayList<>();
        for (Column column : columns) {
            parts.add(quote(column.name) + " " + dialect.type(column) + (column.key ? " NOT NULL" : ""));
        }
        String keys =
                columns.stream().filter(one -> one.key).map(one -> quote(one.name)).collect(Collectors.joining(", "));
        return "CREATE TABLE " + beside(written) + " (" + String.join(", ", parts) + ", PRIMARY KEY (" + keys + "))";
    }

    /** Name, and whether an INSERT must give it a value. */
    private Map<String, Boolean> columnsOf(String table) throws SQLException {
        Map<String, Boolean> found = new HashMap<>();
        try (ResultSet columns =
                about.getColumns(catalog, schema == null ? null : escaped(schema), escaped(table), "%")) {
            while (columns.next()) {
                boolean needed = columns.getInt("NULLABLE") == DatabaseMetaData.columnNoNulls;
                boolean given = columns.getString("COLUMN_DEF") != null || yes(columns, "IS_AUTOINCREMENT")
                        || yes(columns, "IS_GENERATEDCOLUMN");
                if (table.equals(columns.getString("TABLE_NAME"))) {
                    found.put(columns.getString("COLUMN_NAME"), needed && !given);
                }
            }
        }
        return found;
    }

    private static boolean yes(ResultSet columns, String name) {
        try {
            return "YES".equals(columns.getString(name));
        } catch (SQLException absent) {
            return false;
        }
    }

    private boolean unique(String table, Set<String> keys) throws SQLException {
        Map<String, Set<String>> found = new HashMap<>();
        try (ResultSet primary = about.getPrimaryKeys(catalog, schema, table)) {
            while (primary.next()) {
                found.computeIfAbsent("", any -> new HashSet<>()).add(primary.getString("COLUMN_NAME"));
            }
        }
        try (ResultSet indexes = about.getIndexInfo(catalog, schema, table, true, true)) {
            while (indexes.next()) {
                String column = indexes.getString("COLUMN_NAME");
                if (column != null && indexes.getString("FILTER_CONDITION") == null) {
                    found.computeIfAbsent(indexes.getString("INDEX_NAME"), any -> new HashSet<>())
                            .add(unquoted(column));
                }
            }
        }
        return found.containsValue(keys);
    }

    /** PostgreSQL gives the columns of an index as SQL writes them. */
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

    private static String spelled(String name, Set<String> there) {
        if (there.contains(name)) {
            return name;
        }
        List<String> near = there.stream().filter(name::equalsIgnoreCase).toList();
        return near.size() == 1 ? near.get(0) : null;
    }
}
