// Reads manifests as the types of Kubernetes' own package, and fails for an unknown field, a wrong
// type, or a kind that is not expected. chart.sh runs this program.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		objects := 0
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(string(text), -1) {
			if strings.Trim(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, ""), "\n ") == "" {
				continue
			}
			objects++
			if err := check(document); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
				failed = true
			}
		}
		fmt.Printf("%s: %d objects\n", path, objects)
	}
	if failed {
		os.Exit(1)
	}
}

func check(document string) error {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return err
	}
	object, ok := map[string]any{
		"ConfigMap": &core.ConfigMap{},
		"DaemonSet": &apps.DaemonSet{},
		"Service":   &core.Service{},
	}[kind.Kind]
	if !ok {
		return fmt.Errorf("unexpected kind %q", kind.Kind)
	}
	return yaml.UnmarshalStrict([]byte(document), object)
}
