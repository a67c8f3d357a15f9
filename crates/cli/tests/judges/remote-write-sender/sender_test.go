// Runs the sender suite of Prometheus' remote write against the daemon. You can set the path of the
// daemon with the environment variable QUIPU. The daemon scrapes the target of the suite.
package judge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/compliance/remotewrite/sender"
)

// The suite checks only the first request, which must contain the metrics of the target. We
// therefore start the daemon directly after a snapshot would be due. Because the daemon scrapes at
// once, this is long before the next snapshot.
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
		"--scrape", options.ScrapeTargetJobName+"=http://"+options.ScrapeTargetHostPort,
		"--remote-write", options.RemoteWriteEndpointURL,
		"--remote-write-interval", interval.String())
	daemon.Stderr = log
	if err := daemon.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	select {
	case err := <-ended:
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the daemon ended: %v: %s", err, text)
	case <-ctx.Done():
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-ended
		return nil
	}
}

func TestSender(t *testing.T) {
	sender.RunTests(t, quipu{t.TempDir()}, sender.ComplianceTests())
}
