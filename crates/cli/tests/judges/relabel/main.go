// Prints samples as Prometheus relabels them. Each line is a JSON list of a rule in YAML's flow
// style, the labels before, and the labels after, or null if the rule drops the sample.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"gopkg.in/yaml.v2"
)

var (
	random  = rand.New(rand.NewSource(1))
	names   = []string{"__name__", "a", "b", "c", "le", "a.b", "é"}
	values  = []string{"", "foo", "bar", "Foo Bar", "a;b", "12", "x\ny", "ÄÖß", "http://h:80/p", "foo;bar", "ΑΣ"}
	regexes = []string{
		"(.*)", "", ".+", "foo|bar", "f(o+)", "(?P<first>[a-z]+);(.*)", "\\d+", "[\\w.]+", "a(.)?", "(?i)FOO.*",
		"([^;]*);(.*)", "\\S+", "[\\D]*", "(a|b|c)", "__name__|a", "le", "(.)(.*)", ".*o\\b.*", "http://(.*):(\\d+)/.*",
	}
	replacements = []string{"$1", "", "x", "${1}y", "$2-$1", "$$1", "${first}", "$1x", "$9", "$", "${", "pre_$1_$2"}
	targets      = []string{"a", "d", "__name__", "${1}", "t_$1", "le", "a.b", "$1$2"}
	separators   = []string{"", ";", "/", "::"}
	actions      = []string{
		"replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase",
		"keepequal", "dropequal",
	}
)

func pick(list []string) string { return list[random.Intn(len(list))] }

// rule returns a rule with the keys that its action can use.
func rule() string {
	action := pick(actions)
	keys := []string{"action: " + action}
	add := func(key, value string) {
		quoted, _ := json.Marshal(value)
		keys = append(keys, key+": "+string(quoted))
	}
	onlyRegex := action == "labeldrop" || action == "labelkeep"
	equal := action == "keepequal" || action == "dropequal"
	if !onlyRegex && action != "labelmap" {
		sources := make([]string, random.Intn(4))
		for i := range sources {
			sources[i] = pick(names)
		}
		quoted, _ := json.Marshal(sources)
		keys = append(keys, "source_labels: "+string(quoted))
		if !equal && random.Intn(2) == 0 {
			add("separator", pick(separators))
		}
	}
	switch action {
	case "replace", "lowercase", "uppercase", "hashmod", "keepequal", "dropequal":
		target := pick(targets)
		for action != "replace" && strings.Contains(target, "$") {
			target = pick(targets)
		}
		add("target_label", target)
	}
	if !equal && random.Intn(4) > 0 {
		add("regex", pick(regexes))
	}
	if (action == "replace" || action == "labelmap") && random.Intn(4) > 0 {
		add("replacement", pick(replacements))
	}
	if action == "hashmod" {
		keys = append(keys, fmt.Sprint("modulus: ", 1+random.Intn(1000)))
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for lines := 0; lines < 5000; {
		text := rule()
		var config relabel.Config
		if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
			continue
		}
		if config.Validate(model.UTF8Validation) != nil {
			continue
		}
		before := map[string]string{}
		for n := 1 + random.Intn(5); n > 0; n-- {
			if value := pick(values); value != "" {
				before[pick(names)] = value
			}
		}
		builder := labels.NewBuilder(labels.FromMap(before))
		var after map[string]string
		if relabel.ProcessBuilder(builder, &config) {
			after = builder.Labels().Map()
		}
		if err := out.Encode([]any{text, before, after}); err != nil {
			panic(err)
		}
		lines++
	}
}
