package counting;

import io.prometheus.metrics.core.metrics.Counter;
import java.util.Random;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;

/** The labels and values of all workloads. */
public final class Inputs {
    static final String[] KINDS = {"user", "internal", "network"};
    static final String[] ROUTES = {
        "/api/v1/users", "/api/v1/users/:id", "/api/v1/products", "/api/v1/products/:id",
        "/api/v1/products/:id/owner", "/api/v1/products/:id/purchase",
    };
    static final double[] BOUNDS = {0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128};

    /** The length of the tables that a loop cycles through: a power of two. */
    static final int LENGTH = 4096;

    private Inputs() {}

    /** A new family, without exemplars: nothing is sampled for them. */
    static Counter counter(String... labels) {
        return Counter.builder()
                .name("http_request_errors_total")
                .help("Errors of HTTP requests.")
                .labelNames(labels)
                .withoutExemplars()
                .build();
    }

    /** Random kinds and routes. */
    static String[][] pairs() {
        Random random = new Random(1);
        String[][] table = new String[LENGTH][];
        for (int i = 0; i < LENGTH; i++) {
            table[i] = new String[] {
                KINDS[random.nextInt(KINDS.length)], ROUTES[random.nextInt(ROUTES.length)],
            };
        }
        return table;
    }

    /** The three labels of each series, in random order. */
    static String[][] users(int series) {
        Random random = new Random(1);
        String[][] keys = new String[series][];
        for (int i = 0; i < series; i++) {
            keys[i] = new String[] {
                KINDS[random.nextInt(KINDS.length)],
                ROUTES[random.nextInt(ROUTES.length)],
                "Gisela Hernandez " + String.format("%03d", i),
            };
        }
        for (int i = series - 1; i > 0; i--) {
            int other = random.nextInt(i + 1);
            String[] key = keys[i];
            keys[i] = keys[other];
            keys[other] = key;
        }
        return keys;
    }

    /** Values that are spread over all buckets. */
    static double[] observations() {
        Random random = new Random(1);
        double[] values = new double[LENGTH];
        for (int i = 0; i < LENGTH; i++) {
            values[i] = 0.0005 * Math.pow(2, 9 * random.nextDouble());
        }
        return values;
    }

    /** The position of a thread in a table. Threads start at different positions. */
    @State(Scope.Thread)
    public static class Cursor {
        private int at = System.identityHashCode(this) & (LENGTH - 1);

        int next() {
            at = (at + 1) & (LENGTH - 1);
            return at;
        }

        int next(int length) {
            at = at + 1 < length ? at + 1 : 0;
            return at;
        }
    }
}
