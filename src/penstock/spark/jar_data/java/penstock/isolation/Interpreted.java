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
 * The value of an expression that makes maps. Spark builds a map in a buffer that it keeps between rows: after a row on
 * which it raised, the next row would have the keys of that row. So each time that it raises, a new copy of the
 * expression replaces it. Called by spark/expressions.py.
 */
public final class Interpreted extends Guarded implements CodegenFallback {
    private transient Expression own;

    public Interpreted(Expression inner) {
        super(inner);
    }

    public static Column column(Column expression) {
        return ExpressionUtils.column(new Interpreted(ExpressionUtils.expression(expression)));
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
    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        return CodegenFallback.super.doGenCode(context, result);
    }
}
