package main

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// The samples of an exposition: values by name and labels, except the servers' own metrics.
type samples map[string]float64

// The prefixes of metrics about the servers themselves.
var own = []string{"statsd_exporter_", "statsd_metric_mapper_", "quipu_", "go_", "process_", "promhttp_"}

func read(text string) (samples, error) {
	all := make(samples)
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' || isOwn(line) {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("no value in %q", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("no number in %q", line)
		}
		series, err := normal(line[:at])
		if err != nil {
			return nil, err
		}
		all[series] = value
	}
	return all, nil
}

func isOwn(line string) bool {
	for _, prefix := range own {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// normal sorts the labels of a series, and omits labels with an empty value, because an empty label
// counts as missing.
func normal(series string) (string, error) {
	name, rest, found := strings.Cut(series, "{")
	if !found {
		return name, nil
	}
	var labels []string
	for rest != "}" {
		label, after, found := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if !found || err != nil {
			return "", fmt.Errorf("strange labels in %q", series)
		}
		if quoted != `""` {
			labels = append(labels, label+"="+quoted)
		}
		rest = strings.TrimPrefix(after[len(quoted):], ",")
	}
	if len(labels) == 0 {
		return name, nil
	}
	sort.Strings(labels)
	return name + "{" + strings.Join(labels, ",") + "}", nil
}

// differences lists the selected series that occur on only one side, or with different values.
func (s samples) differences(ours samples, selected func(string) bool) []string {
	var all []string
	for series, value := range s {
		other, ok := ours[series]
		switch {
		case !selected(series):
		case !ok:
			all = append(all, fmt.Sprintf("only statsd_exporter has %s %v", series, value))
		case !isNear(series, value, other):
			all = append(all, fmt.Sprintf("%s is %v in statsd_exporter, and %v", series, value, other))
		}
	}
	for series, value := range ours {
		if _, ok := s[series]; !ok && selected(series) {
			all = append(all, fmt.Sprintf("only quipu has %s %v", series, value))
		}
	}
	sort.Strings(all)
	return all
}

// isNear compares values. Quantiles are estimates, so quipu's can be off by up to 1.1 %.
func isNear(series string, a, b float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) && math.IsNaN(b)
	}
	tolerance := 1e-12
	if strings.Contains(series, "quantile=") {
		tolerance = 0.012
	}
	return a == b || math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
}
