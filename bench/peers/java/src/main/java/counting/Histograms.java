package counting;

import io.prometheus.metrics.core.datapoints.DistributionDataPoint;
import io.prometheus.metrics.core.metrics.Histogram;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;

/** Observations in histograms. */
public class Histograms {
    private static Histogram.Builder seconds(String... labels) {
        return Histogram.builder()
                .name("http_request_seconds")
                .help("Time to answer.")
                .labelNames(labels)
                .withoutExemplars();
    }

    /** Eight buckets. */
    @State(Scope.Benchmark)
    public static class Classic {
        final double[] values = Inputs.observations();
        final DistributionDataPoint point = seconds("kind")
                .classicOnly()
                .classicUpperBounds(Inputs.BOUNDS)
                .build()
                .labelValues("user");
    }

    /** 18 series of eight buckets. */
    @State(Scope.Benchmark)
    public static class Routes {
        final double[] values = Inputs.observations();
        final String[][] pairs = Inputs.pairs();
        final Histogram family = seconds("kind", "route")
                .classicOnly()
                .classicUpperBounds(Inputs.BOUNDS)
                .build();
    }

    /** Exponential buckets that grow by 9%. */
    @State(Scope.Benchmark)
    public static class Native {
        final double[] values = Inputs.observations();
        final DistributionDataPoint point = seconds("kind")
                .nativeOnly()
                .nativeInitialSchema(3)
                .build()
                .labelValues("user");
    }

    @Benchmark
    public void classic(Classic state, Inputs.Cursor cursor) {
        state.point.observe(state.values[cursor.next()]);
    }

    @Benchmark
    public void among(Routes state, Inputs.Cursor cursor) {
        int at = cursor.next();
        String[] pair = state.pairs[at];
        state.family.labelValues(pair[0], pair[1]).observe(state.values[at]);
    }

    @Benchmark
    public void exponential(Native state, Inputs.Cursor cursor) {
        state.point.observe(state.values[cursor.next()]);
    }
}
