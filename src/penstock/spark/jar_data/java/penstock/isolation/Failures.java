package penstock.isolation;

import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.QueryContextType;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tells whether a job failed because of the rows that it read, and puts the error into one line. Called by
 * tables/failing_rows.py, and `cannotRaise` by spark/expressions.py.
 */
public final class Failures {
    private static final int LONGEST = 500, QUOTED = 4000;
    private static final String TASK = "org.apache.spark.executor.Executor$TaskRunner";
    private static final String PYTHON = "org.apache.spark.api.python.PythonException";
    private static final Pattern ADVICE = Pattern.compile(
            " ?(If necessary set \"?[\\w.]+\"? to \"?false\"?[^.]*\\.|Use [`'][^`']+[`'][^.]* instead\\.|"
                    + "Correct the value as per the syntax, or change its target type\\.)");
    private static final Pattern STATE = Pattern.compile(" ?SQLSTATE: \\w{5}.*$");
    private static final Pattern FRAME = Pattern.compile("File \"([^\"]+)\", line (\\d+), in ([^\\n]+)");

    private static final Set<String> PLAIN = Set.of(
            "AttributeReference", "Literal", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
            "GreaterThanOrEqual", "And", "Or", "Not", "In", "InSet", "IsNull", "IsNotNull", "GetStructField",
            "StartsWith", "EndsWith", "Contains", "Coalesce", "Lower", "Upper", "StringTrim", "Between");

    private Failures() {}

    /** Kind ("data", or empty), the name of the error, the message in one line, and where in the user's Python. */
    public static String[] about(Throwable raised) {
        Throwable decisive = decisive(raised);
        Throwable reported = decisive != null ? decisive : last(raised);
        return new String[] {decisive != null ? "data" : "", name(reported), message(reported), place(reported)};
    }

    /** The message in one line, with the fragment of SQL that it concerns if that is known. */
    static String message(Throwable raised) {
        String text = raised.getMessage() == null ? raised.getClass().getSimpleName() : raised.getMessage();
        if (raised.getClass().getName().equals(PYTHON)) {
            return shortened(lastLine(text));
        }
        int context = text.indexOf("\n== ");
        text = STATE.matcher(line(context >= 0 ? text.substring(0, context) : text)).replaceAll("");
        text = ADVICE.matcher(text).replaceAll("").strip();
        if (!(raised instanceof SparkThrowable)) {
            String name = raised.getClass().getSimpleName();
            text = text.equals(name) ? "[" + name + "]" : "[" + name + "] " + text;
        }
        String fragment = fragment(raised);
        return shortened(fragment.isEmpty() ? text : text + " In: " + fragment);
    }

    /** Whether the condition of a filter consists only of comparisons of columns and values, which never raise. */
    public static boolean cannotRaise(Dataset<Row> filtered) {
        var plan = ((org.apache.spark.sql.classic.Dataset<Row>) filtered).queryExecution().analyzed();
        return plan instanceof Filter filter && cannotRaise(filter.condition());
    }

    private static boolean cannotRaise(Expression expression) {
        if (expression instanceof Cast cast) {
            if (!Cast.canUpCast(cast.child().dataType(), cast.dataType())) {
                return false;
            }
        } else if (!PLAIN.contains(expression.getClass().getSimpleName())) {
            return false;
        }
        for (Expression child : CollectionConverters.asJava(expression.children())) {
            if (!cannotRaise(child)) {
                return false;
            }
        }
        return true;
    }

    private static String name(Throwable raised) {
        if (raised.getClass().getName().equals(PYTHON)) {
            String line = lastLine(String.valueOf(raised.getMessage()));
            int colon = line.indexOf(':');
            return colon > 0 ? line.substring(0, colon) : line;
        }
        String condition = raised instanceof SparkThrowable spark ? spark.getCondition() : null;
        return condition != null ? condition : raised.getClass().getSimpleName();
    }

    /** file:line of the user's own code, as far as the error shows it; a traceback's frames, innermost first. */
    private static String place(Throwable raised) {
        List<String> places = new ArrayList<>();
        if (raised.getClass().getName().equals(PYTHON)) {
            Matcher frames = FRAME.matcher(String.valueOf(raised.getMessage()));
            while (frames.find()) {
                if (isOfUser(frames.group(1))) {
                    places.add(0, frames.group(1) + ":" + frames.group(2) + " in " + frames.group(3).strip());
                }
            }
        } else if (raised instanceof SparkThrowable spark && spark.getQueryContext() != null) {
            for (QueryContext context : spark.getQueryContext()) {
                if (context.contextType() == QueryContextType.DataFrame && isOfUser(context.callSite())) {
                    places.add(context.callSite());
                }
            }
        }
        return String.join("\n", places);
    }

    private static String fragment(Throwable raised) {
        if (raised instanceof SparkThrowable spark && spark.getQueryContext() != null) {
            for (QueryContext context : spark.getQueryContext()) {
                if (context.contextType() == QueryContextType.SQL && !context.fragment().isBlank()) {
                    return line(context.fragment());
                }
            }
        }
        return "";
    }

    private static boolean isOfUser(String file) {
        return file != null && !file.isBlank() && !file.contains("site-packages") && !file.contains("dist-packages")
                && !file.contains("/pyspark/") && !file.contains("pyspark.zip") && !file.contains("/src/penstock/")
                && !file.startsWith("<") && !file.contains("/lib/python") && !file.startsWith("java.");
    }

    private static String lastLine(String text) {
        String message = "";
        boolean isMessage = false;
        for (String line : text.split("\n")) {
            if (line.isBlank()) {
                if (isMessage) {
                    break;
                }
            } else if (!line.startsWith(" ") && !line.startsWith("Traceback") && !line.startsWith("The above exception")
                    && !line.startsWith("During handling")) {
                message = line.strip();
                isMessage = true;
            } else {
                isMessage = false;
            }
        }
        return message.isEmpty() ? "an error of Python" : message;
    }

    private static String shortened(String text) {
        String line = line(text);
        return line.length() <= LONGEST ? line : line.substring(0, LONGEST) + "…";
    }

    /** The text in one line, without its middle if it is long: an error may quote a value of any length. */
    private static String line(String text) {
        int half = QUOTED / 2;
        String excerpt = text.length() <= QUOTED ? text
                : text.substring(0, half) + "…" + text.substring(text.length() - half);
        return excerpt.replaceAll("\\s+", " ").strip();
    }

    /** The cause that shows that the data are at fault; null if something else is. */
    private static Throwable decisive(Throwable raised) {
        List<Throwable> chain = chain(raised);
        if (chain.stream().anyMatch(cause -> cause instanceof SparkThrowable spark
                && String.valueOf(spark.getCondition()).startsWith("FAILED_READ_FILE"))) {
            return null;
        }
        boolean inTask = chain.stream().anyMatch(Failures::isOfTask);
        for (int index = chain.size() - 1; index >= 0; index--) {
            Throwable cause = chain.get(index);
            String name = cause.getClass().getName();
            if (name.equals(PYTHON)) {
                return cause;
            }
            // records are missing: the SQL state of that is one of data too
            if (name.startsWith("org.apache.spark.sql.kafka010.")) {
                return null;
            }
            if (!inTask && (name.endsWith("AnalysisException") || name.endsWith("ParseException"))) {
                return null;
            }
            if (cause instanceof SparkThrowable spark
                    && (isOfData(spark.getSqlState()) || (inTask && isRaisedByRow(spark)))) {
                return cause;
            }
            if (cause instanceof IOException && !name.startsWith("com.fasterxml.")
                    && !(cause instanceof CharacterCodingException)) {
                return null;
            }
            if (cause instanceof InterruptedException || cause instanceof OutOfMemoryError
                    || name.startsWith("org.apache.kafka.")
                    || name.endsWith("TaskKilledException") || name.endsWith("TimeoutException")
                    || name.endsWith("CancellationException") || name.contains("Concurrent")) {
                return null;
            }
            if (inTask && isOfExpression(cause, name)) {
                return cause;
            }
        }
        return null;
    }

    /** What a task raised arrives as it is, or inside the error of its job. */
    private static boolean isOfTask(Throwable cause) {
        return String.valueOf(cause.getMessage()).contains("Job aborted due to stage")
                || Arrays.stream(cause.getStackTrace()).anyMatch(frame -> frame.getClassName().startsWith(TASK));
    }

    /**
     * What Spark itself raises in a task concerns a row, unless it concerns Spark's own work. The search for the row
     * confirms it.
     */
    private static boolean isRaisedByRow(SparkThrowable spark) {
        String condition = spark.getCondition(), state = spark.getSqlState();
        return condition != null && !condition.startsWith("INTERNAL_ERROR") && !condition.startsWith("FAILED_READ_FILE")
                && !condition.startsWith("_LEGACY") && state != null && !state.startsWith("XX")
                && !state.startsWith("58")
                && !state.startsWith("KD") && !state.startsWith("57") && !state.startsWith("53");
    }

    /** SQL states of data exceptions, of what a user raises, and of functions that failed. */
    private static boolean isOfData(String state) {
        return state != null && (state.startsWith("22") || state.startsWith("P0") || state.startsWith("38")
                || state.startsWith("39"));
    }

    private static boolean isOfExpression(Throwable cause, String name) {
        return cause instanceof StackOverflowError || cause instanceof ArithmeticException
                || cause instanceof IllegalArgumentException
                || cause instanceof java.time.DateTimeException || cause instanceof IndexOutOfBoundsException
                || cause instanceof NegativeArraySizeException || cause instanceof ClassCastException
                || cause instanceof NullPointerException || cause instanceof UnsupportedOperationException
                || cause instanceof CharacterCodingException || name.equals("scala.MatchError")
                || name.startsWith("com.fasterxml.jackson.") || name.equals("java.util.NoSuchElementException");
    }

    private static Throwable last(Throwable raised) {
        List<Throwable> chain = chain(raised);
        return chain.get(chain.size() - 1);
    }

    private static List<Throwable> chain(Throwable raised) {
        Set<Throwable> visited = Collections.newSetFromMap(new IdentityHashMap<>());
        List<Throwable> causes = new ArrayList<>();
        for (Throwable cause = raised; cause != null && visited.add(cause); cause = cause.getCause()) {
            causes.add(cause);
        }
        return causes;
    }
}
