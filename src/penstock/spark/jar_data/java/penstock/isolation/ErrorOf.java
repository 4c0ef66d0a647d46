package penstock.isolation;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/** What an expression raises on the row, in one line; NULL if it has a value. Called by spark/expressions.py. */
public final class ErrorOf extends Guarded {
    public ErrorOf(Expression inner) {
        super(inner);
    }

    public static Column column(Column expression) {
        return ExpressionUtils.column(new ErrorOf(ExpressionUtils.expression(expression)));
    }

    public static UTF8String message(Throwable raised) {
        return UTF8String.fromString(Failures.message(raised));
    }

    @Override
    Expression around(Expression other) {
        return new ErrorOf(other);
    }

    @Override
    public DataType dataType() {
        return DataTypes.StringType;
    }

    @Override
    public Object eval(InternalRow row) {
        try {
            inner.eval(row);
            return null;
        } catch (Exception | StackOverflowError raised) {
            return message(raised);
        }
    }

    @Override
    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        ExprCode value = inner.genCode(context);
        List<String> parts = List.of(
                "\nboolean ", " = true;\nUTF8String ", " = null;\ntry {\n", "\n} catch (Exception raised) {\n",
                " = penstock.isolation.ErrorOf.message(raised);\n",
                " = false;\n} catch (StackOverflowError raised) {\n",
                " = penstock.isolation.ErrorOf.message(raised);\n", " = false;\n}\n");
        List<JavaCode> inputs = List.of(
                result.isNull(), result.value(), value.code(), result.value(), result.isNull(), result.value(),
                result.isNull());
        var block = new CodeBlock(
                CollectionConverters.asScala(parts).toSeq(), CollectionConverters.asScala(inputs).toSeq());
        return result.copy(block, result.isNull(), result.value());
    }
}
