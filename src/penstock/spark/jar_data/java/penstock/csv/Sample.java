package penstock.csv;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.unsafe.types.UTF8String;
import penstock.json.CellType;

/** The types of the columns of CSV records. */
public final class Sample implements Serializable {
    private final List<CellType> columns = new ArrayList<>();
    private long records;

    private Sample(int width, String zone) {
        for (int i = 0; i < width; i++) {
            columns.add(new CellType(zone));
        }
    }

    /** `cells`: a text for each column; of a record that is none they are all NULL. */
    public static Sample of(Dataset<Row> cells, String zone) {
        int width = cells.columns().length;
        MapPartitionsFunction<Row, Sample> part = rows -> {
            Sample found = new Sample(width, zone);
            while (rows.hasNext()) {
                Row row = rows.next();
                found.records++;
                for (int i = 0; i < width; i++) {
                    found.columns.get(i).add(UTF8String.fromString(row.getString(i)));
                }
            }
            return List.of(found).iterator();
        };
        Sample whole = new Sample(width, zone);
        for (Object one : (Object[]) cells.mapPartitions(part, Encoders.javaSerialization(Sample.class)).collect()) {
            Sample other = (Sample) one;
            whole.records += other.records;
            for (int i = 0; i < width; i++) {
                whole.columns.get(i).merge(other.columns.get(i));
            }
        }
        return whole;
    }

    /** How many cells most of the records have, the fewest of those that are as frequent; 0 if none is a record. */
    public static int width(Dataset<Row> texts, Map<String, String> options) {
        Format format = new Format(options);
        MapPartitionsFunction<Row, Integer> counts = rows -> {
            List<Integer> found = new ArrayList<>();
            while (rows.hasNext()) {
                Format.Parts parts = new Format.Parts();
                String fault = format.read(UTF8String.fromString(rows.next().getString(0)).getBytes(), parts, 0);
                if (fault == null) {
                    found.add(parts.count);
                }
            }
            return found.iterator();
        };
        TreeMap<Integer, Long> often = new TreeMap<>();
        for (Row row : (Row[]) texts.mapPartitions(counts, Encoders.INT()).toDF("cells")
                .groupBy("cells").count().collect()) {
            often.put(row.getInt(0), row.getLong(1));
        }
        int width = 0;
        for (Map.Entry<Integer, Long> one : often.entrySet()) {
            width = width == 0 || one.getValue() > often.get(width) ? one.getKey() : width;
        }
        return width;
    }

    /** How many records were looked at. */
    public long records() {
        return records;
    }

    /** As DDL writes them, one a line; void where no value was seen. */
    public String types() {
        return String.join("\n", columns.stream().map(CellType::type).toList());
    }
}
