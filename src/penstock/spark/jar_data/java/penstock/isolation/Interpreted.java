package penstock.isolation;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;

/**
 * The value of an expression that makes maps. Spark puts a map together in a place that it keeps between rows: after a
 * row on which it has raised, the next one would find the keys of that row. So each time that it raises, a new copy of
 * the expression takes its place.
 */
public final class Interpreted extends Guarded implements CodegenFallback {
    private transient Expression own;

    public Interpreted(Expression inner) {
        super(inner);
    }

    public static Column column(Column given) {
        return ExpressionUtils.column(new Interpreted(ExpressionUtils.expression(given)));
    }

    @Override
    Expression around(Expression other) {
        return new Interpreted(other);
    }

    @Override
    public DataType dataType() {
        return inner.dataType();
    }

    @Override
    public Object eval(InternalRow row) {
        if (own == null) {
            own = inner.clone();
        }
        try {
            return own.eval(row);
        } catch (RuntimeException | Error raised) {
            own = null;
            throw raised;
        }
    }

    @Override
    public ExprCode doGenCode(CodegenContext context, ExprCode made) {
        return CodegenFallback.super.doGenCode(context, made);
    }
}
