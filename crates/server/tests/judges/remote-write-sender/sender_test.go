// Runs the sender suite of Prometheus' remote write against the daemon, whose path is in QUIPU.
//
// The suite has a target to be scraped. The daemon does not scrape: its metrics are fetched here and
// imported, under the labels that a scrape would give them.
package judge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/compliance/remotewrite/sender"
)

const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// The suite looks at the first request, which has to have the metrics: they are imported right after
// one snapshot would be due, and long before the next one.
const interval = 5 * time.Second

type quipu struct{ directory string }

func (quipu) Name() string { return "quipu" }

func (q quipu) Run(ctx context.Context, options sender.Options) error {
	directory, err := os.MkdirTemp(q.directory, "")
	if err != nil {
		return err
	}
	for time.Now().UnixMilli()%interval.Milliseconds() > 1000 {
		time.Sleep(10 * time.Millisecond)
	}
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	daemon := exec.Command(os.Getenv("QUIPU"), "serve",
		"--state", filepath.Join(directory, "state.quipu"), "--listen", "127.0.0.1:0",
		"--log-format", "json", "--remote-write", options.RemoteWriteEndpointURL,
		"--remote-write-interval", interval.String(),
		"--external-label", "job="+options.ScrapeTargetJobName,
		"--external-label", "instance="+options.ScrapeTargetHostPort)
	daemon.Stderr = log
	if err := daemon.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	if err := feed(ctx, log.Name(), options.ScrapeTargetHostPort); err != nil {
		_ = daemon.Process.Kill()
		return err
	}
	select {
	case err := <-ended:
		return fmt.Errorf("the daemon ended: %v", err)
	case <-ctx.Done():
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-ended
		return nil
	}
}

// Imports what the target exposes, once.
func feed(ctx context.Context, log, target string) error {
	listening := regexp.MustCompile(`"listening","address":"([^"]*)"`)
	var address string
	for address == "" {
		text, err := os.ReadFile(log)
		if err != nil || ctx.Err() != nil {
			return fmt.Errorf("the daemon does not listen: %s %v", text, err)
		}
		if found := listening.FindSubmatch(text); found != nil {
			address = string(found[1])
		}
		time.Sleep(10 * time.Millisecond)
	}
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+target+"/metrics", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", openMetrics)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	imported, err := http.Post("http://"+address+"/api/v1/import/prometheus", openMetrics, bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer imported.Body.Close()
	if imported.StatusCode >= 300 {
		answer, _ := io.ReadAll(imported.Body)
		return fmt.Errorf("the import failed: %s: %s", imported.Status, answer)
	}
	return nil
}

func TestSender(t *testing.T) {
	sender.RunTests(t, quipu{t.TempDir()}, sender.ComplianceTests())
}
