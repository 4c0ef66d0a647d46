package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
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
 * The elements of a JSON list, each as it is written: no number loses a digit, and no element is decoded. Called by
 * sources/files/lines.py.
 */
public final class Elements {
    private Elements() {}

    /** NULL where the text is not one whole list. */
    public static Column column(Column text) {
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(text))).toSeq();
        var types = CollectionConverters.asScala(List.<AbstractDataType>of(DataTypes.StringType)).toSeq();
        return ExpressionUtils.column(new StaticInvoke(Elements.class, new ArrayType(DataTypes.StringType, false), "of",
                arguments, types, true, true, true, scala.Option.empty()));
    }

    public static ArrayData of(UTF8String text) {
        byte[] bytes = text.getBytes();
        int at = 0;
        while (at < bytes.length && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t')) {
            at++;
        }
        if (at == bytes.length || bytes[at] != '[') {
            return null;
        }
        try (JsonParser parser = Decoder.JSON.createParser(bytes)) {
            Record record = new Record(parser, bytes, false, Set.of());
            record.refuseOtherEncodings();
            parser.nextToken();
            List<Object> elements = new ArrayList<>();
            while (parser.nextToken() != JsonToken.END_ARRAY) {
                int start = record.start();
                parser.skipChildren();
                parser.finishToken();
                int end = (int) parser.currentLocation().getByteOffset();
                elements.add(UTF8String.fromBytes(bytes, start, end - start));
            }
            record.refuseMore("list");
            return new GenericArrayData(elements.toArray());
        } catch (IOException | RuntimeException notAList) {
            return null;
        }
    }
}
