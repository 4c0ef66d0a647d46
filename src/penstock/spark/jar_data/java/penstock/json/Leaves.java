package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The scalar values of a JSON object, each as `path = value`, with the paths that rescued fields have: the contents of
 * a record are then the same whether a field has a column or not. Null, {} and [] are left out. Equal numbers are
 * written the same. Called by verify/recompute/contents.py.
 */
public final class Leaves {
    private static final int LONGEST_NUMBER = 400;

    private Leaves() {}

    /** NULL where the text is NULL or not JSON. */
    public static Column column(Column text) {
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(text))).toSeq();
        var types = CollectionConverters.asScala(List.<AbstractDataType>of(DataTypes.StringType)).toSeq();
        return ExpressionUtils.column(new StaticInvoke(Leaves.class, new ArrayType(DataTypes.StringType, false), "of",
                arguments, types, true, true, true, scala.Option.empty()));
    }

    public static ArrayData of(UTF8String text) {
        List<Object> leaves = new ArrayList<>();
        try (JsonParser parser = Decoder.JSON.createParser(text.getBytes())) {
            parser.nextToken();
            add(parser, "", leaves);
            return new GenericArrayData(leaves.toArray());
        } catch (IOException | RuntimeException | StackOverflowError notJson) {
            return null;
        }
    }

    private static void add(JsonParser parser, String path, List<Object> leaves) throws IOException {
        switch (parser.currentToken()) {
            case VALUE_NULL -> {}
            case START_OBJECT -> {
                for (String name; (name = parser.nextFieldName()) != null; ) {
                    parser.nextToken();
                    add(parser, path.isEmpty() ? name : path + "." + name, leaves);
                }
            }
            case START_ARRAY -> {
                for (int index = 0; parser.nextToken() != JsonToken.END_ARRAY; index++) {
                    add(parser, path + "[" + index + "]", leaves);
                }
            }
            case VALUE_STRING -> leaves.add(UTF8String.fromString(path + " = \"" + parser.getText() + "\""));
            case VALUE_TRUE, VALUE_FALSE -> leaves.add(UTF8String.fromString(path + " = " + parser.getText()));
            default -> leaves.add(UTF8String.fromString(path + " = " + plain(parser.getText())));
        }
    }

    private static String plain(String number) {
        if (number.length() > LONGEST_NUMBER) {
            return number;
        }
        try {
            return new BigDecimal(number).stripTrailingZeros().toString();
        } catch (ArithmeticException | NumberFormatException tooLarge) {
            return number;
        }
    }
}
