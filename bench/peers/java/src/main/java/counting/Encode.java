package counting;

import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** All series as text, into a buffer that is reused. */
@State(Scope.Benchmark)
public class Encode {
    @Param("18000")
    int series;

    private final PrometheusRegistry registry = new PrometheusRegistry();
    private final PrometheusTextFormatWriter writer = PrometheusTextFormatWriter.create();
    private final ByteArrayOutputStream page = new ByteArrayOutputStream();

    @Setup
    public void fill() {
        Counter family = Inputs.counter("kind", "route", "user");
        registry.register(family);
        for (String[] key : Inputs.users(series)) {
            family.labelValues(key).inc();
        }
    }

    @Benchmark
    public int encode() throws IOException {
        page.reset();
        writer.write(page, registry.scrape());
        return page.size();
    }
}
