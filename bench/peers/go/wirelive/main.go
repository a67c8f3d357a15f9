// Command wirelive marshals and unmarshals messages on request, because another program compares
// its bytes with Go's libraries. You send one request per line, and get one response per line,
// until the input ends; this command buffers responses while requests wait. Fields are separated by
// tabs:
//
//	encode ROW KIND TYPE ID COUNTER VALUES GAUGE
//	decode ROW KIND BYTES
//
// KIND is Counter, BatchTimer, Gauge or MetricUnion. ID and BYTES are in hex. COUNTER and TYPE are
// decimal. VALUES are the bits of each value as 16 hex digits, separated by commas, and GAUGE is
// the same for one value. You write "-" for a field that the message lacks. The responses:
//
//	ok BYTES
//	ok KIND TYPE ID COUNTER VALUES GAUGE
//	error TEXT
//
// Each request gets new encoders and decoders. The ones of gob-stream have already processed one
// message with zero values.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"quipu/bench/peers/wire"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		log.Fatal("wirelive has no arguments: it reads requests from its input")
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve responds to requests until the input ends.
func serve(requests io.Reader, answers io.Writer) error {
	reader, writer := bufio.NewReaderSize(requests, 1<<16), bufio.NewWriterSize(answers, 1<<16)
	for {
		line, err := reader.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			if _, err := writer.WriteString(answer(line) + "\n"); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
		if reader.Buffered() == 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
}

// answer returns the response to one request. A panic of a library is an error.
func answer(request string) (text string) {
	defer func() {
		if reason := recover(); reason != nil {
			text = failure(fmt.Errorf("panic: %v", reason))
		}
	}()
	arguments := strings.Split(request, "\t")
	var err error
	switch {
	case arguments[0] == "encode" && len(arguments) == 8:
		text, err = encode(arguments[1:])
	case arguments[0] == "decode" && len(arguments) == 4:
		text, err = decode(arguments[1:])
	default:
		err = fmt.Errorf("%d fields that begin with %q are not a request", len(arguments), arguments[0])
	}
	if err != nil {
		return failure(err)
	}
	return "ok\t" + text
}

// failure is an error response, which is always one line.
func failure(err error) string {
	clean := strings.NewReplacer("\n", " ", "\r", " ", "\t", " ")
	return "error\t" + clean.Replace(err.Error())
}

// encode takes a row and the fields of a message.
func encode(arguments []string) (string, error) {
	message, err := parse(arguments[1:])
	if err != nil {
		return "", err
	}
	codec, err := codecOf(arguments[0], message.Kind)
	if err != nil {
		return "", err
	}
	codec.Load(message)
	data, err := codec.Marshal(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", data), nil
}

// decode takes a row, a kind and the bytes of a message.
func decode(arguments []string) (string, error) {
	kind, err := parseKind(arguments[1])
	if err != nil {
		return "", err
	}
	data, err := parseBytes(arguments[2])
	if err != nil {
		return "", err
	}
	codec, err := codecOf(arguments[0], kind)
	if err != nil {
		return "", err
	}
	if err := codec.Unmarshal(data, 1); err != nil {
		return "", err
	}
	return format(codec.Message()), nil
}

func codecOf(name string, kind wire.Kind) (wire.Codec, error) {
	row, err := wire.Find(name)
	if err != nil {
		return nil, err
	}
	return row.New(kind), nil
}
