package penstock.jdbc;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/**
 * What a sink keeps in its target, in the transaction of its rows: how far it has come, and which rows of its last
 * batch the database refused. A sink that died before it could write that down in the lake finds it here.
 */
final class Positions {
    static final String POSITIONS = "penstock_positions";
    static final String REFUSED = "penstock_refused";
    private static final String[] OWN =
            {"ledger", "generation", "batch", "position_before", "position_after", "changes"};

    private final Connection connection;
    private final Table table;
    private final Dialect dialect;
    private final String sink;
    private final String target;

    Positions(Connection connection, Table table, Dialect dialect, String sink, String target) {
        this.connection = connection;
        this.table = table;
        this.dialect = dialect;
        this.sink = sink;
        this.target = target;
    }

    void create() throws SQLException {
        String name = "VARCHAR(200) NOT NULL";
        String who = define("sink", name) + define("target", name);
        if (table.find(POSITIONS) == null) {
            run("CREATE TABLE " + table.beside(POSITIONS) + " (" + who + define("ledger", "VARCHAR(64) NOT NULL")
                    + define("generation", "BIGINT NOT NULL") + define("batch", "BIGINT NOT NULL")
                    + define("position_before", "VARCHAR(4000) NOT NULL")
                    + define("position_after", "VARCHAR(4000) NOT NULL")
                    + define("changes", "BIGINT NOT NULL")
                    + "PRIMARY KEY (" + table.quote("sink") + ", " + table.quote("target") + "))");
        }
        if (table.find(REFUSED) == null) {
            run("CREATE TABLE " + table.beside(REFUSED) + " (" + who + define("number", "INTEGER NOT NULL")
                    + define("row_key", dialect.text()) + define("sql_state", "VARCHAR(10)")
                    + define("message", dialect.text())
                    + "PRIMARY KEY (" + table.quote("sink") + ", " + table.quote("target") + ", "
                    + table.quote("number") + "))");
        }
    }

    private String define(String name, String type) {
        return table.quote(name) + " " + type + ", ";
    }

    private void run(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    /**
     * Ledger, generation, batch, before, after, changes; empty if there is none. Until the end of the transaction
     * nobody else can read it this way.
     */
    List<String> lock() throws SQLException {
        String first = table.quote("changes");
        if (update("UPDATE " + table.beside(POSITIONS) + " SET " + first + " = " + first + mine()) == 0) {
            update("INSERT INTO " + table.beside(POSITIONS) + " (" + table.quote("sink") + ", " + table.quote("target")
                    + ", " + list() + ") VALUES (?, ?, '', 0, 0, '', '', 0)");
            return List.of();
        }
        List<String> found = new ArrayList<>();
        try (PreparedStatement asked = named("SELECT " + list() + " FROM " + table.beside(POSITIONS) + mine());
                ResultSet rows = asked.executeQuery()) {
            if (rows.next()) {
                for (int i = 1; i <= OWN.length; i++) {
                    found.add(rows.getString(i));
                }
            }
        }
        return found;
    }

    void move(String ledger, long generation, long batch, String before, String after, long changes)
            throws SQLException {
        StringBuilder set = new StringBuilder();
        for (String name : OWN) {
            set.append(set.isEmpty() ? "" : ", ").append(table.quote(name)).append(" = ?");
        }
        try (var moved = connection.prepareStatement("UPDATE " + table.beside(POSITIONS) + " SET " + set + mine())) {
            moved.setString(1, ledger);
            moved.setLong(2, generation);
            moved.setLong(3, batch);
            moved.setString(4, before);
            moved.setString(5, after);
            moved.setLong(6, changes);
            moved.setString(7, sink);
            moved.setString(8, target);
            moved.executeUpdate();
        }
    }

    /** Forgets those of the batch before. */
    void refuse(List<String[]> rows) throws SQLException {
        update("DELETE FROM " + table.beside(REFUSED) + mine());
        if (rows.isEmpty()) {
            return;
        }
        List<String> names = List.of("sink", "target", "number", "row_key", "sql_state", "message");
        String sql = Dialect.insert(table.beside(REFUSED), names.stream().map(table::quote).toList());
        try (PreparedStatement kept = connection.prepareStatement(sql)) {
            for (int number = 0; number < rows.size(); number++) {
                kept.setString(1, sink);
                kept.setString(2, target);
                kept.setInt(3, number);
                for (int i = 0; i < 3; i++) {
                    kept.setString(4 + i, rows.get(number)[i]);
                }
                kept.addBatch();
            }
            kept.executeBatch();
        }
    }

    List<String[]> refused() throws SQLException {
        List<String[]> found = new ArrayList<>();
        String names = table.quote("row_key") + ", " + table.quote("sql_state") + ", " + table.quote("message");
        try (PreparedStatement asked = named("SELECT " + names + " FROM " + table.beside(REFUSED) + mine());
                ResultSet rows = asked.executeQuery()) {
            while (rows.next()) {
                found.add(new String[] {rows.getString(1), rows.getString(2), rows.getString(3)});
            }
        }
        return found;
    }

    private String list() {
        StringBuilder names = new StringBuilder();
        for (String name : OWN) {
            names.append(names.isEmpty() ? "" : ", ").append(table.quote(name));
        }
        return names.toString();
    }

    private String mine() {
        return " WHERE " + table.quote("sink") + " = ? AND " + table.quote("target") + " = ?";
    }

    private int update(String sql) throws SQLException {
        try (PreparedStatement statement = named(sql)) {
            return statement.executeUpdate();
        }
    }

    private PreparedStatement named(String sql) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        statement.setString(1, sink);
        statement.setString(2, target);
        return statement;
    }
}
