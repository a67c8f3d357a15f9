package counting;

import java.io.PrintStream;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Takes one turn of client_java at a workload of the Rust program {@code counting}, and prints a JSON
 * line for each figure. For a workload that it does not know, it prints nothing.
 */
public final class Main {
    private static final String SUBJECT = "client_java 1.4.1 (Java)";

    private static final int[] ONE = {1};
    private static final int[] TWO = {1, 2};

    /** A method that JMH measures, and the name of the case. */
    private record Case(String method, String name, int[] threads, int series) {}

    private final boolean quick;
    private final PrintStream records;

    private Main(boolean quick, PrintStream records) {
        this.quick = quick;
        this.records = records;
    }

    public static void main(String[] arguments) throws RunnerException {
        String workload = "";
        boolean quick = false;
        for (int i = 0; i < arguments.length; i++) {
            switch (arguments[i]) {
                case "--quick" -> quick = true;
                case "-workload" -> workload = arguments[++i];
                default -> throw new IllegalArgumentException("unknown argument " + arguments[i]);
            }
        }
        PrintStream records = System.out;
        // JMH shows its progress on stdout.
        System.setOut(System.err);
        Main turn = new Main(quick, records);
        for (Case measured : turn.cases(workload)) {
            for (int threads : measured.threads()) {
                turn.measure(measured, threads);
            }
        }
    }

    private List<Case> cases(String workload) {
        int few = series(18_000);
        int many = series(100_000);
        return switch (workload) {
            case "handle" -> List.of(
                    new Case("Counters.handle", "handle/add", new int[] {1, 2, 4, 8}, 0));
            case "route" -> List.of(
                    new Case("Counters.route", "enum and known text/add", TWO, 0));
            case "user" -> List.of(
                    new Case("Counters.user", "three labels/add among " + commas(few), TWO, few));
            case "histogram" -> List.of(
                    new Case("Histograms.classic", "histogram/observe", TWO, 0),
                    new Case("Histograms.among", "histogram/observe among 18", TWO, 0),
                    new Case("Histograms.exponential", "native histogram/observe", TWO, 0));
            case "encode" -> {
                Case first = new Case(
                        "Encode.encode", "encode/" + commas(few) + " series", ONE, few);
                Case second = new Case(
                        "Encode.encode", "encode/" + commas(many) + " series", ONE, many);
                yield few == many ? List.of(first) : List.of(first, second);
            }
            default -> List.of();
        };
    }

    /** The number of series of a turn. */
    private int series(int full) {
        return quick ? Math.max(full / 200, 100) : full;
    }

    private static String commas(int number) {
        return String.format(Locale.ROOT, "%,d", number);
    }

    private void measure(Case measured, int threads) throws RunnerException {
        ChainedOptionsBuilder options = new OptionsBuilder()
                .include("counting\\." + measured.method().replace(".", "\\.") + "$")
                .mode(Mode.AverageTime)
                .timeUnit(TimeUnit.NANOSECONDS)
                .forks(1)
                .warmupIterations(quick ? 1 : 4)
                .warmupTime(TimeValue.milliseconds(quick ? 20 : 250))
                .measurementIterations(1)
                .measurementTime(TimeValue.milliseconds(quick ? 20 : 100))
                .threads(threads)
                .verbosity(VerboseMode.SILENT);
        if (measured.series() > 0) {
            options.param("series", Integer.toString(measured.series()));
        }
        Collection<RunResult> results = new Runner(options.build()).run();
        if (results.size() != 1) {
            throw new IllegalStateException(measured.method() + " gave no figure");
        }
        double time = results.iterator().next().getPrimaryResult().getScore();
        String metric = "core time";
        if (measured.name().startsWith("encode/")) {
            metric = "time";
            time /= measured.series();
        } else {
            // JMH divides by the operations of one thread.
            int cores = Runtime.getRuntime().availableProcessors();
            time *= (double) Math.min(threads, cores) / threads;
        }
        print(measured.name(), threads, metric, time);
    }

    private void print(String name, int threads, String metric, double nanos) {
        String line = "{\"case\":\"%s\",\"subject\":\"%s\",\"threads\":%d,\"metric\":\"%s\","
                + "\"unit\":\"ns\",\"median\":%s,\"min\":%s,\"max\":%s,\"runs\":1}";
        records.printf(
                Locale.ROOT, line + "%n", name, SUBJECT, threads, metric, nanos, nanos, nanos);
    }
}
