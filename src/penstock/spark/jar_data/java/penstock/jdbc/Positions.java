package penstock.jdbc;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/**
 * What a sink stores in its target, in the transaction of its rows, for Session: its position, and which rows of its
 * last batch the database refused. A sink that died before it could record that in the lake finds it here.
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
        String owner = define("sink", name) + define("target", name);
        if (table.find(POSITIONS) == null) {
            run("CREATE TABLE " + table.beside(POSITIONS) + " (" + owner + define("ledger", "VARCHAR(64) NOT NULL")
                    + define("generation", "BIGINT NOT NULL") + define("batch", "BIGINT NOT NULL")
                    + define("position_before", "VARCHAR(4000) NOT NULL")
                    + define("position_after", "VARCHAR(4000) NOT NULL")
                    + define("changes", "BIGINT NOT NULL")
                    + "PRIMARY KEY (" + table.quote("sink") + ", " + table.quote("target") + "))");
        }
        if (table.find(REFUSED) == null) {
            run("CREATE TABLE " + table.beside(REFUSED) + " (" + owner + define("number", "INTEGER NOT NULL")
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
     * Locks the position: ledger, generation, batch, before, after, changes; empty if there is none. Until the end of
     * the transaction no other session can lock it.
     */
    List<String> lock() throws SQLException {
        String column = table.quote("changes");
        if (update("UPDATE " + table.beside(POSITIONS) + " SET " + column + " = " + column + mine()) == 0) {
            update("INSERT INTO " + table.beside(POSITIONS) + " (" + table.quote("sink") + ", " + table.quote("target")
                    + ", " + list() + ") VALUES (?, ?, '', 0, 0, '', '', 0)");
            return List.of();
        }
        List<String> position = new ArrayList<>();
        try (PreparedStatement query = named("SELECT " + list() + " FROM " + table.beside(POSITIONS) + mine());
                ResultSet rows = query.executeQuery()) {
            if (rows.next()) {
                for (int i = 1; i <= OWN.length; i++) {
                    position.add(rows.getString(i));
                }
            }
        }
        return position;
    }

    void move(String ledger, long generation, long batch, String before, String after, long changes)
            throws SQLException {
        StringBuilder assignments = new StringBuilder();
        for (String name : OWN) {
            assignments.append(assignments.isEmpty() ? "" : ", ").append(table.quote(name)).append(" = ?");
        }
        try (var statement = connection.prepareStatement(
                "UPDATE " + table.beside(POSITIONS) + " SET " + assignments + mine())) {
            statement.setString(1, ledger);
            statement.setLong(2, generation);
            statement.setLong(3, batch);
            statement.setString(4, before);
            statement.setString(5, after);
            statement.setLong(6, changes);
            statement.setString(7, sink);
            statement.setString(8, target);
            statement.executeUpdate();
        }
    }

    /** Stores the refused rows of a batch, in place of those of the batch before. */
    void refuse(List<String[]> rows) throws SQLException {
        update("DELETE FROM " + table.beside(REFUSED) + mine());
        if (rows.isEmpty()) {
            return;
        }
        List<String> names = List.of("sink", "target", "number", "row_key", "sql_state", "message");
        String sql = Dialect.insert(table.beside(REFUSED), names.stream().map(table::quote).toList());
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int number = 0; number < rows.size(); number++) {
                statement.setString(1, sink);
                statement.setString(2, target);
                statement.setInt(3, number);
                for (int i = 0; i < 3; i++) {
                    statement.setString(4 + i, rows.get(number)[i]);
                }
                statement.addBatch();
            }
            statement.executeBatch();
        }
    }

    List<String[]> refused() throws SQLException {
        List<String[]> refused = new ArrayList<>();
        String names = table.quote("row_key") + ", " + table.quote("sql_state") + ", " + table.quote("message");
        try (PreparedStatement query = named("SELECT " + names + " FROM " + table.beside(REFUSED) + mine());
                ResultSet rows = query.executeQuery()) {
            while (rows.next()) {
                refused.add(new String[] {rows.getString(1), rows.getString(2), rows.getString(3)});
            }
        }
        return refused;
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
