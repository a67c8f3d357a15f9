package main

import (
	"regexp"
	"strings"
)

// The intended differences: the packets they occur in, the start of each line of the difference,
// and the reason.
var meant = []struct {
	packets *regexp.Regexp
	lines   []string
	reason  string
}{
	{
		regexp.MustCompile(`\|c:`),
		[]string{"only quipu has", "only statsd_exporter has"},
		"the container is not a label, nor are unknown fields a fault, as in Datadog's agent",
	},
	{
		regexp.MustCompile(`:[0-9.]+:[0-9.:]+\|[cg]\b`),
		[]string{"only quipu has"},
		"all of several values of a counter or a gauge are taken",
	},
	{
		regexp.MustCompile(`\|@(bar|0)$`),
		[]string{"only statsd_exporter has"},
		"a value whose sample rate is not one is refused, since its count is not known",
	},
}

// intended returns the reason why the differences of a case are intended, or an empty string if
// they are not.
func (c testCase) intended(differences []string) string {
	for _, one := range meant {
		if one.packets.MatchString(c.packet) && allBegin(differences, one.lines) {
			return one.reason
		}
	}
	return ""
}

func allBegin(differences, prefixes []string) bool {
	for _, difference := range differences {
		begins := false
		for _, prefix := range prefixes {
			begins = begins || strings.HasPrefix(difference, prefix)
		}
		if !begins {
			return false
		}
	}
	return true
}
