// Judges many expositions in one process, for fuzzing.
//
// A request is a content type and a body. Each is preceded by its length, which has four bytes in
// little endian. The response to each request is a line. For an exposition that Prometheus scrapes
// completely, this line is "ok", followed by the name and value of each sample with the label
// sender="fair", all separated by tabs. For other expositions, the line is the first fault: the
// error of the parser, or a sample that the scrape loop or the storage refuses.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

func judge(requests io.Reader, verdicts io.Writer) error {
	in, out := bufio.NewReader(requests), bufio.NewWriter(verdicts)
	for {
		contentType, err := readField(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := readField(in)
		if err != nil {
			return err
		}
		if _, err := out.WriteString(oneLine(verdict(body, string(contentType))) + "\n"); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func readField(in io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	field := make([]byte, binary.LittleEndian.Uint32(length[:]))
	_, err := io.ReadFull(in, field)
	return field, err
}

func oneLine(text string) string {
	return strings.NewReplacer("\n", "\\n", "\r", "\\r").Replace(text)
}

func verdict(body []byte, contentType string) (result string) {
	defer func() {
		if flaw := recover(); flaw != nil {
			result = fmt.Sprint("the parser panics: ", flaw)
		}
	}()
	parser, err := newParser(body, contentType)
	if err != nil {
		return err.Error()
	}
	page := page{samples: map[string]struct{}{}, headers: map[header]struct{}{}}
	page.scheme = model.LegacyValidation
	if strings.Contains(contentType, "escaping=allow-utf-8") {
		page.scheme = model.UTF8Validation
	}
	page.fair.WriteString("ok")
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return page.fair.String()
		}
		if err == nil {
			err = page.take(entry, parser)
		}
		if err != nil {
			return err.Error()
		}
	}
}

// page is the state of one exposition.
type page struct {
	scheme  model.ValidationScheme
	samples map[string]struct{}
	headers map[header]struct{}
	fair    strings.Builder
}

// header is a line about a family.
type header struct {
	entry textparse.Entry
	name  string
}

func (p *page) take(entry textparse.Entry, parser textparse.Parser) error {
	switch entry {
	case textparse.EntryType:
		name, _ := parser.Type()
		return p.header(entry, name)
	case textparse.EntryHelp:
		name, _ := parser.Help()
		return p.header(entry, name)
	case textparse.EntryUnit:
		name, _ := parser.Unit()
		return p.header(entry, name)
	case textparse.EntrySeries:
		_, _, value := parser.Series()
		return p.sample(parser, number(value))
	case textparse.EntryHistogram:
		_, _, integers, floats := parser.Histogram()
		if integers != nil {
			if err := integers.Validate(); err != nil {
				return err
			}
			floats = integers.ToFloat(nil)
		}
		if err := floats.Validate(); err != nil {
			return err
		}
		return p.sample(parser, floats.String())
	}
	return nil
}

func (p *page) header(entry textparse.Entry, name []byte) error {
	header := header{entry, string(name)}
	if _, found := p.headers[header]; found {
		return fmt.Errorf("duplicate header of type %d: %q", entry, name)
	}
	p.headers[header] = struct{}{}
	return nil
}

func (p *page) sample(parser textparse.Parser, value string) error {
	var found labels.Labels
	parser.Labels(&found)
	if name, duplicate := found.HasDuplicateLabelNames(); duplicate {
		return fmt.Errorf("duplicate label %q: %s", name, found)
	}
	// The scrape loop drops labels without a value.
	found = found.WithoutEmpty()
	name := found.Get(labels.MetricName)
	if name == "" {
		return fmt.Errorf("no metric name: %s", found)
	}
	if !found.IsValid(p.scheme) {
		return fmt.Errorf("invalid metric name or label names: %s", found)
	}
	identity := string(found.Bytes(nil))
	if _, duplicate := p.samples[identity]; duplicate {
		return fmt.Errorf("duplicate sample: %s", found)
	}
	p.samples[identity] = struct{}{}
	parser.StartTimestamp()
	for example := (exemplar.Exemplar{}); parser.Exemplar(&example); example = (exemplar.Exemplar{}) {
		if name, duplicate := example.Labels.HasDuplicateLabelNames(); duplicate {
			return fmt.Errorf("duplicate label %q of an exemplar: %s", name, example.Labels)
		}
	}
	if found.Get("sender") == "fair" {
		fmt.Fprintf(&p.fair, "\t%s=%s", name, value)
	}
	return nil
}
