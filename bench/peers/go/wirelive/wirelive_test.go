package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func lines(texts ...string) string {
	return strings.ReplaceAll(strings.Join(texts, "\n"), " ", "\t") + "\n"
}

func TestAnswersInOrder(t *testing.T) {
	requests := lines(
		"encode gencode Counter - 6162 100 - -",
		"encode xdr MetricUnion 2 61 -1 3ff0000000000000,4000000000000000 0000000000000000",
		"encode xdr BatchTimer -  -  -",
		"decode gencode Counter 026162c801",
		"decode colfer MetricUnion 7f",
		"decode colfer Gauge 7f",
		"decode colfer BatchTimer 7f",
	)
	want := lines(
		"ok 026162c801",
		"ok 000000020000000161000000ffffffffffffffff00000002"+
			"3ff000000000000040000000000000000000000000000000",
		"ok 0000000000000000",
		"ok Counter - 6162 100 - -",
		"ok MetricUnion 0  0  0000000000000000",
		"ok Gauge -  - - 0000000000000000",
		"ok BatchTimer -  -  -",
	)
	var answers strings.Builder
	if err := serve(strings.NewReader(requests), &answers); err != nil {
		t.Fatal(err)
	}
	if answers.String() != want {
		t.Errorf("got\n%swant\n%s", answers.String(), want)
	}
}

func TestEveryEncoderIsFresh(t *testing.T) {
	requests := []string{
		"encode gob Counter - 61 100 - -", "encode gob-stream Counter - 61 100 - -",
	}
	for _, request := range requests {
		request = strings.ReplaceAll(request, " ", "\t")
		if first, second := answer(request), answer(request); first != second {
			t.Errorf("%s, then %s", first, second)
		}
	}
}

func TestFaultsAreErrors(t *testing.T) {
	for _, request := range []string{
		"", "encode", "encode gencode Counter - 6162 100 -", "remember gencode Counter 00",
		"encode asn.1 Counter - 6162 100 - -", "encode gencode Timer - 6162 100 - -",
		"encode gencode Counter - 616 100 - -", "encode gencode Counter - 6162 1e2 - -",
		"encode gencode MetricUnion 128 6162 1  0000000000000000",
		"encode gencode Gauge - 6162 - - 0", "encode gencode BatchTimer - 6162 - 00,0000000000000000 -",
		"encode json Gauge - 6162 - - 7ff8000000000001", "decode gencode Counter 05",
		"decode flatbuffers Counter ffffffff", "decode colfer Counter 01", "decode bson Gauge 00",
	} {
		got := answer(strings.ReplaceAll(request, " ", "\t"))
		if !strings.HasPrefix(got, "error\t") || strings.Count(got, "\t") != 1 {
			t.Errorf("%q: %q", request, got)
		}
	}
}

func TestAnswersBeforeTheInputEnds(t *testing.T) {
	requests, send := io.Pipe()
	receive, answers := io.Pipe()
	go func() { answers.CloseWithError(serve(requests, answers)) }()
	timeout := time.AfterFunc(10*time.Second, func() { receive.CloseWithError(io.ErrNoProgress) })
	defer timeout.Stop()
	for range 3 {
		if _, err := io.WriteString(send, lines("decode colfer Gauge 7f")); err != nil {
			t.Fatal(err)
		}
		want := lines("ok Gauge -  - - 0000000000000000")
		got := make([]byte, len(want))
		if _, err := io.ReadFull(receive, got); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	send.Close()
	if rest, err := io.ReadAll(receive); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}
