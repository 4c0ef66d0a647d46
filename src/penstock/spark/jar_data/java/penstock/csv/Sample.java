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

/** Infers how many columns CSV records have, and their types. Called by sources/files/csv.py. */
public final class Sample implements Serializable {
    private final List<CellType> columns = new ArrayList<>();
    private long records;

    private Sample(int width, String zone) {
        for (int i = 0; i < width; i++) {
            columns.add(new CellType(zone));
        }
    }

    /** `cells`: a text for each column, all of them NULL for a line that is not a record. */
    public static Sample of(Dataset<Row> cells, String zone) {
        int width = cells.columns().length;
        MapPartitionsFunction<Row, Sample> part = rows -> {
            Sample sample = new Sample(width, zone);
            while (rows.hasNext()) {
                Row row = rows.next();
                sample.records++;
                for (int i = 0; i < width; i++) {
                    sample.columns.get(i).add(UTF8String.fromString(row.getString(i)));
                }
            }
            return List.of(sample).iterator();
        };
        Sample merged = new Sample(width, zone);
        for (Object item : (Object[]) cells.mapPartitions(part, Encoders.javaSerialization(Sample.class)).collect()) {
            Sample other = (Sample) item;
            merged.records += other.records;
            for (int i = 0; i < width; i++) {
                merged.columns.get(i).merge(other.columns.get(i));
            }
        }
        return merged;
    }

    /** How many cells most of the records have, the fewest of equally frequent numbers; 0 if there is no record. */
    public static int width(Dataset<Row> texts, Map<String, String> options) {
        Format format = new Format(options);
        MapPartitionsFunction<Row, Integer> counts = rows -> {
            List<Integer> sizes = new ArrayList<>();
            while (rows.hasNext()) {
                Format.Parts parts = new Format.Parts();
                String fault = format.read(UTF8String.fromString(rows.next().getString(0)).getBytes(), parts, 0);
                if (fault == null) {
                    sizes.add(parts.count);
                }
            }
            return sizes.iterator();
        };
        TreeMap<Integer, Long> frequencies = new TreeMap<>();
        for (Row row : (Row[]) texts.mapPartitions(counts, Encoders.INT()).toDF("cells")
                .groupBy("cells").count().collect()) {
            frequencies.put(row.getInt(0), row.getLong(1));
        }
        int width = 0;
        for (Map.Entry<Integer, Long> frequency : frequencies.entrySet()) {
            width = width == 0 || frequency.getValue() > frequencies.get(width) ? frequency.getKey() : width;
        }
        return width;
    }

    /** How many records were read. */
    public long records() {
        return records;
    }

    /** The types in DDL, one per line; void where there was no value. */
    public String types() {
        return String.join("\n", columns.stream().map(CellType::type).toList());
    }
}
