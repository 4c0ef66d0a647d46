package penstock.isolation;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import scala.jdk.javaapi.CollectionConverters;

/** The value of an expression, or NULL if it raises on the row. Called by spark/expressions.py. */
public final class Attempt extends Guarded {
    public Attempt(Expression inner) {
        super(inner);
    }

    public static Column column(Column expression) {
        return ExpressionUtils.column(new Attempt(ExpressionUtils.expression(expression)));
    }

    @Override
    Expression around(Expression other) {
        return new Attempt(other);
    }

    @Override
    public DataType dataType() {
        return inner.dataType();
    }

    @Override
    public Object eval(InternalRow row) {
        try {
            return inner.eval(row);
        } catch (Exception | StackOverflowError raised) {
            return null;
        }
    }

    @Override
    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        ExprCode value = inner.genCode(context);
        String type = CodeGenerator.javaType(dataType()), nothing = CodeGenerator.defaultValue(dataType(), false);
        List<String> parts = List.of(
                "\nboolean ", " = true;\n" + type + " ", " = " + nothing + ";\ntry {\n", "\n", " = ", ";\n", " = ",
                ";\n} catch (Exception raised) {\n", " = true;\n} catch (StackOverflowError raised) {\n",
                " = true;\n}\n");
        List<JavaCode> inputs = List.of(
                result.isNull(), result.value(), value.code(), result.value(), value.value(), result.isNull(),
                value.isNull(), result.isNull(), result.isNull());
        var block = new CodeBlock(
                CollectionConverters.asScala(parts).toSeq(), CollectionConverters.asScala(inputs).toSeq());
        return result.copy(block, result.isNull(), result.value());
    }
}
