// Package flatbuffers has the accessors that google/flatbuffers generates, by its compiler of version
// 2.0.8.
package flatbuffers

//go:generate flatc --go -o .. messages.fbs
//go:generate gofmt -w .
