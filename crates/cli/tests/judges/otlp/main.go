// Prints names as Prometheus translates them. Each line is a JSON list of a strategy, a type, a
// name, a unit, and the resulting names of the metric, the unit and the label. A name is empty if
// Prometheus refuses it.
package main

import (
	"encoding/json"
	"math/rand"
	"os"

	"github.com/prometheus/otlptranslator"
)

var (
	parts = []string{
		"http", "server", "total", "ratio", "bytes", "seconds", "2xx", "_", "__", ".", "..", "-", ":",
		"é", "/", " ", "second", "per", "per_second", "_total", "_ratio", ".total", "x", "", "percent", "花",
	}
	units = []string{
		"", "1", "s", "ms", "By", "By/s", "{item}", "{item}/s", "1/s", "%", "m/s", "Cel", "kg", "m^2",
		"By/{x}", " s / m ", "foo bar", "_a", "a_", "/s", "s/", "per", "By/mo", "MiBy", "é", "__", "s/%",
	}
	types = []otlptranslator.MetricType{
		otlptranslator.MetricTypeMonotonicCounter, otlptranslator.MetricTypeGauge,
		otlptranslator.MetricTypeHistogram, otlptranslator.MetricTypeNonMonotonicCounter,
	}
	kinds      = []string{"counter", "gauge", "other", "other"}
	strategies = []otlptranslator.TranslationStrategyOption{
		otlptranslator.UnderscoreEscapingWithSuffixes, otlptranslator.NoUTF8EscapingWithSuffixes,
		otlptranslator.UnderscoreEscapingWithoutSuffixes, otlptranslator.NoTranslation,
	}
)

func main() {
	random := rand.New(rand.NewSource(1))
	out := json.NewEncoder(os.Stdout)
	word := func() string {
		text := ""
		for n := 1 + random.Intn(5); n > 0; n-- {
			text += parts[random.Intn(len(parts))] + []string{"_", ".", "", ""}[random.Intn(4)]
		}
		return text
	}
	for range 5000 {
		name, unit, kind := word(), units[random.Intn(len(units))], random.Intn(len(kinds))
		strategy := strategies[random.Intn(len(strategies))]
		namer := otlptranslator.NewMetricNamer("", strategy)
		metric, err := namer.Build(otlptranslator.Metric{Name: name, Unit: unit, Type: types[kind]})
		if err != nil {
			metric = ""
		}
		unitNamer := otlptranslator.UnitNamer{}
		labelNamer := otlptranslator.LabelNamer{UTF8Allowed: !strategy.ShouldEscape()}
		label, err := labelNamer.Build(name)
		if err != nil {
			label = ""
		}
		line := []string{string(strategy), kinds[kind], name, unit, metric, unitNamer.Build(unit), label}
		if err := out.Encode(line); err != nil {
			panic(err)
		}
	}
}
