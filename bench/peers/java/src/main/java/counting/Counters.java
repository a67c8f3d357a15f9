package counting;

import io.prometheus.metrics.core.datapoints.CounterDataPoint;
import io.prometheus.metrics.core.metrics.Counter;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** Additions to counters. */
public class Counters {
    /** A series that a program keeps. */
    @State(Scope.Benchmark)
    public static class Handle {
        final CounterDataPoint point = Inputs.counter("kind").labelValues("user");
    }

    /** 18 series by two labels. */
    @State(Scope.Benchmark)
    public static class Routes {
        final Counter family = Inputs.counter("kind", "route");
        final String[][] pairs = Inputs.pairs();
    }

    /** Many series by three labels. */
    @State(Scope.Benchmark)
    public static class Users {
        @Param("18000")
        int series;

        final Counter family = Inputs.counter("kind", "route", "user");
        String[][] keys;

        @Setup
        public void fill() {
            keys = Inputs.users(series);
            for (String[] key : keys) {
                family.labelValues(key).inc();
            }
        }
    }

    @Benchmark
    public void handle(Handle state) {
        state.point.inc();
    }

    @Benchmark
    public void route(Routes state, Inputs.Cursor cursor) {
        String[] pair = state.pairs[cursor.next()];
        state.family.labelValues(pair[0], pair[1]).inc();
    }

    @Benchmark
    public void user(Users state, Inputs.Cursor cursor) {
        String[] key = state.keys[cursor.next(state.keys.length)];
        state.family.labelValues(key[0], key[1], key[2]).inc();
    }
}
