// Parses expositions with the parsers of Prometheus' server.
//
// Usage: textparse CONTENT-TYPE < exposition
//
//	textparse -verdicts < requests
//
// The first form prints the samples as JSON; verdicts.go documents the second one.
//
// The output has one object for each sample, in order. Numbers are strings, since JSON has no NaN
// and no infinities. A sample has the type, help and unit that were declared for its family.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

type sample struct {
	Family    string            `json:"family"`
	Type      string            `json:"type"`
	Help      string            `json:"help"`
	Unit      string            `json:"unit"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Value     string            `json:"value,omitempty"`
	Native    *native           `json:"native,omitempty"`
	Start     int64             `json:"start,omitempty"`
	Exemplars []observation     `json:"exemplars,omitempty"`
}

type native struct {
	Schema  int32    `json:"schema"`
	Count   string   `json:"count"`
	Sum     string   `json:"sum"`
	Zero    string   `json:"zero"`
	Buckets []string `json:"buckets"`
}

type observation struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
	Time   int64             `json:"time,omitempty"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-verdicts" {
		if err := judge(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "textparse:", err)
			os.Exit(1)
		}
		return
	}
	samples, err := read()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(samples)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "textparse:", err)
		os.Exit(1)
	}
}

func read() ([]sample, error) {
	if len(os.Args) != 2 {
		return nil, errors.New("usage: textparse CONTENT-TYPE < exposition, or textparse -verdicts")
	}
	bytes, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	parser, err := newParser(bytes, os.Args[1])
	if err != nil {
		return nil, err
	}
	samples := []sample{}
	var family sample
	enter := func(name []byte) {
		if family.Family != string(name) {
			family = sample{Family: string(name)}
		}
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		switch entry {
		case textparse.EntryType:
			name, kind := parser.Type()
			enter(name)
			family.Type = string(kind)
		case textparse.EntryHelp:
			name, help := parser.Help()
			enter(name)
			family.Help = string(help)
		case textparse.EntryUnit:
			name, unit := parser.Unit()
			enter(name)
			family.Unit = string(unit)
		case textparse.EntrySeries:
			one := family
			_, _, value := parser.Series()
			one.Value = number(value)
			samples = append(samples, complete(one, parser))
		case textparse.EntryHistogram:
			one := family
			_, _, integers, floats := parser.Histogram()
			if integers != nil {
				floats = integers.ToFloat(nil)
			}
			one.Native = describe(floats)
			samples = append(samples, complete(one, parser))
		}
	}
}

func newParser(bytes []byte, contentType string) (textparse.Parser, error) {
	return textparse.New(bytes, contentType, labels.NewSymbolTable(), textparse.ParserOptions{
		EnableOpenMetrics2:                      true,
		KeepClassicOnClassicAndNativeHistograms: true,
	})
}

// complete adds the fields that all samples have.
func complete(one sample, parser textparse.Parser) sample {
	var found labels.Labels
	parser.Labels(&found)
	one.Labels = found.Map()
	one.Name = one.Labels[labels.MetricName]
	delete(one.Labels, labels.MetricName)
	if !strings.HasPrefix(one.Name, one.Family) {
		one.Family, one.Type, one.Help, one.Unit = "", "", "", ""
	}
	one.Start = parser.StartTimestamp()
	var example exemplar.Exemplar
	for parser.Exemplar(&example) {
		seen := observation{Labels: example.Labels.Map(), Value: number(example.Value)}
		if example.HasTs {
			seen.Time = example.Ts
		}
		one.Exemplars = append(one.Exemplars, seen)
		example = exemplar.Exemplar{}
	}
	return one
}

func describe(floats *histogram.FloatHistogram) *native {
	described := &native{
		Schema:  floats.Schema,
		Count:   number(floats.Count),
		Sum:     number(floats.Sum),
		Zero:    number(floats.ZeroCount),
		Buckets: []string{},
	}
	for buckets := floats.AllBucketIterator(); buckets.Next(); {
		described.Buckets = append(described.Buckets, buckets.At().String())
	}
	return described
}

func number(value float64) string {
	return strconv.FormatFloat(value, 'g', -1, 64)
}
