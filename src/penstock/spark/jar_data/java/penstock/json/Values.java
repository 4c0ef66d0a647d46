package penstock.json;

import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads the current value of a Record, which is not null. Decoder and Changes have one for each column. */
interface Values {
    /** The value as Spark holds it, or null after noting a fault in the record. Leaves the parser at its last token. */
    Object read(Record record) throws IOException;

    static Values of(DataType type, ZoneId zone) {
        if (type instanceof StructType struct) {
            return object(struct, new Fields(struct, zone));
        }
        if (type instanceof ArrayType array) {
            return array(array, of(array.elementType(), zone));
        }
        if (type instanceof MapType map) {
            return map(map, of(map.valueType(), zone));
        }
        return Scalars.of(type, zone);
    }

    /** The comment of a column that takes any value, as its JSON text; a string as its content. */
    String ANY = "penstock: any JSON";

    static Values any() {
        return record -> record.parser.currentToken() == JsonToken.VALUE_STRING ? record.text() : record.written();
    }

    private static boolean isAny(StructField field) {
        return field.getComment().isDefined() && field.getComment().get().equals(ANY);
    }

    /** The type without the comments of its fields. */
    static DataType withoutNotes(DataType type) {
        if (type instanceof StructType struct) {
            StructType plain = new StructType();
            for (StructField field : struct.fields()) {
                plain = plain.add(field.name(), withoutNotes(field.dataType()), field.nullable());
            }
            return plain;
        }
        if (type instanceof ArrayType array) {
            return new ArrayType(withoutNotes(array.elementType()), array.containsNull());
        }
        if (type instanceof MapType map) {
            return new MapType(map.keyType(), withoutNotes(map.valueType()), map.valueContainsNull());
        }
        return type;
    }

    static Values object(StructType type, Fields fields) {
        return record -> {
            if (record.parser.currentToken() != JsonToken.START_OBJECT) {
                return record.wrong(type);
            }
            Object[] row = new Object[fields.width()];
            fields.read(record, row, false);
            return new GenericInternalRow(row);
        };
    }

    static Values array(ArrayType type, Values element) {
        return record -> record.parser.currentToken() == JsonToken.START_ARRAY ? array(record, element)
                : record.wrong(type);
    }

    static Values map(MapType type, Values value) {
        return record -> record.parser.currentToken() == JsonToken.START_OBJECT ? map(record, value)
                : record.wrong(type);
    }

    private static Object array(Record record, Values element) throws IOException {
        List<Object> elements = new ArrayList<>();
        for (JsonToken token; (token = record.parser.nextToken()) != JsonToken.END_ARRAY; ) {
            elements.add(token == JsonToken.VALUE_NULL ? null : element.read(record));
        }
        return new GenericArrayData(elements.toArray());
    }

    private static Object map(Record record, Values value) throws IOException {
        Set<String> names = new HashSet<>();
        List<Object> keys = new ArrayList<>(), values = new ArrayList<>();
        for (String name; (name = record.parser.nextFieldName()) != null; ) {
            if (!names.add(name)) {
                throw record.twice();
            }
            record.refuseHalves(name);
            keys.add(UTF8String.fromString(name));
            record.quiet(true);
            values.add(record.parser.nextToken() == JsonToken.VALUE_NULL ? null : value.read(record));
            record.quiet(false);
        }
        return new ArrayBasedMapData(new GenericArrayData(keys.toArray()), new GenericArrayData(values.toArray()));
    }

    /** Reads the fields of an object, by their names exactly as written. */
    final class Fields {
        private final String[] names;
        private final Values[] values;
        private final boolean[] required;
        private final Map<String, Integer> places = new HashMap<>();

        Fields(StructType struct, ZoneId zone) {
            this(struct, (name, type) -> of(type, zone), true);
        }

        /** `strict`: a NOT NULL column of the schema must have a value. */
        Fields(StructType struct, BiFunction<String, DataType, Values> readerOf, boolean strict) {
            StructField[] fields = struct.fields();
            names = new String[fields.length];
            values = new Values[fields.length];
            required = new boolean[fields.length];
            for (int i = 0; i < fields.length; i++) {
                names[i] = fields[i].name();
                values[i] = isAny(fields[i]) ? any() : readerOf.apply(names[i], fields[i].dataType());
                required[i] = strict && !fields[i].nullable();
                places.put(names[i], i);
            }
        }

        int width() {
            return names.length;
        }

        void read(Record record, Object[] row, boolean top) throws IOException {
            boolean[] present = new boolean[names.length];
            Set<String> unknownNames = null;
            int next = 0; // most objects have their fields in the order of the schema
            for (String name; (name = record.parser.nextFieldName()) != null; ) {
                JsonToken token = record.parser.nextToken();
                int index = next < names.length && names[next].equals(name) ? next : places.getOrDefault(name, -1);
                if (index < 0) {
                    unknownNames = unknownNames == null ? new HashSet<>() : unknownNames;
                    if (!unknownNames.add(name)) {
                        throw record.twice();
                    }
                    record.unknown(name, top);
                    continue;
                }
                if (present[index]) {
                    throw record.twice();
                }
                present[index] = true;
                next = index + 1;
                row[index] = token == JsonToken.VALUE_NULL ? null : values[index].read(record);
            }
            for (int i = 0; i < names.length; i++) {
                if (required[i] && row[i] == null) {
                    record.missing(names[i]);
                }
            }
        }
    }
}
