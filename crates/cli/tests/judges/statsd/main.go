// Compares the daemon with statsd_exporter. It sends the datagrams of statsd_exporter's own tests
// to both, and compares their pages at /metrics.
//
//	go run . PATH_OF_QUIPU
//
// This program fetches statsd_exporter, with its tests, through the Go proxy. Each difference must
// be intended: you can find the list, with the reasons, in intended.go.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	module  = "github.com/prometheus/statsd_exporter"
	version = "v0.31.0"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . PATH_OF_QUIPU")
		os.Exit(2)
	}
	if err := judge(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(quipu string) error {
	directory, err := os.MkdirTemp("", "judge-statsd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	source, err := fetch(directory)
	if err != nil {
		return err
	}
	cases, err := readCases(source)
	if err != nil {
		return err
	}
	theirs, err := start("statsd_exporter", func(udp, http string) *exec.Cmd {
		return exec.Command(filepath.Join(directory, "statsd_exporter"),
			"--statsd.listen-udp="+udp, "--statsd.listen-tcp=", "--web.listen-address="+http)
	})
	if err != nil {
		return err
	}
	defer theirs.stop()
	ours, err := start("quipu", func(udp, http string) *exec.Cmd {
		return exec.Command(quipu, "serve", "--statsd", "udp://"+udp, "--listen", http,
			"--state", filepath.Join(directory, "state.quipu"))
	})
	if err != nil {
		return err
	}
	defer ours.stop()
	for _, server := range []*server{theirs, ours} {
		if err := server.send(cases); err != nil {
			return err
		}
	}
	return compare(cases, theirs.samples, ours.samples)
}

// fetch installs statsd_exporter, and returns the directory of its source.
func fetch(directory string) (string, error) {
	install := exec.Command("go", "install", module+"@"+version)
	install.Env = append(os.Environ(), "GOBIN="+directory, "GOFLAGS=-mod=mod")
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		return "", fmt.Errorf("go install %s: %w", module, err)
	}
	download := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	download.Dir = directory
	output, err := download.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", module, err)
	}
	var found struct{ Dir string }
	err = json.Unmarshal(output, &found)
	return found.Dir, err
}

// A server receives datagrams and exposes metrics.
type server struct {
	name, udp, http string
	command         *exec.Cmd
	samples         samples
}

func start(name string, command func(udp, http string) *exec.Cmd) (*server, error) {
	udp, err := freePort("udp")
	if err != nil {
		return nil, err
	}
	http, err := freePort("tcp")
	if err != nil {
		return nil, err
	}
	server := &server{name: name, udp: udp, http: http, command: command(udp, http)}
	if err := server.command.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, err := server.scrape(); err == nil {
			return server, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	server.stop()
	return nil, fmt.Errorf("%s does not start", name)
}

func freePort(network string) (string, error) {
	if network == "udp" {
		socket, err := net.ListenPacket(network, "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer socket.Close()
		return socket.LocalAddr().String(), nil
	}
	listener, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func (s *server) stop() {
	s.command.Process.Kill()
	s.command.Wait()
}

// send sends all cases, and stores the page after a final counter has arrived.
func (s *server) send(cases []testCase) error {
	socket, err := net.Dial("udp", s.udp)
	if err != nil {
		return err
	}
	defer socket.Close()
	for _, one := range cases {
		if _, err := socket.Write([]byte(one.packet)); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := socket.Write([]byte("the_last_one:1|c")); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		text, err := s.scrape()
		if err != nil {
			return err
		}
		if strings.Contains(text, "\nthe_last_one") {
			s.samples, err = read(text)
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not show what was sent", s.name)
}

func (s *server) scrape() (string, error) {
	response, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// compare prints the number of equal cases, and fails if a case contains an unintended difference.
func compare(cases []testCase, theirs, ours samples) error {
	agree, meant := 0, make(map[string]int)
	var unknown []string
	for _, one := range cases {
		differences := theirs.differences(ours, func(name string) bool {
			return strings.HasPrefix(name, one.prefix)
		})
		if len(differences) == 0 {
			agree++
		} else if reason := one.intended(differences); reason != "" {
			meant[reason]++
		} else {
			unknown = append(unknown, fmt.Sprintf("%s, %q: %q\n\t%s",
				one.test, one.name, one.packet, strings.Join(differences, "\n\t")))
		}
	}
	// A line that does not begin with a letter gets no prefix.
	for _, difference := range theirs.differences(ours, func(name string) bool {
		return !strings.HasPrefix(name, "case")
	}) {
		unknown = append(unknown, "a name without a prefix: "+difference)
	}
	fmt.Printf("%d cases: %d agree\n", len(cases), agree)
	for _, reason := range slices.Sorted(maps.Keys(meant)) {
		fmt.Printf("%d differ by intent: %s\n", meant[reason], reason)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%d differ:\n%s", len(unknown), strings.Join(unknown, "\n"))
	}
	return nil
}
