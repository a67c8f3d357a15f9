// Package flatbuffers contains the accessors that the compiler of google/flatbuffers, version
// 2.0.8, generates.
package flatbuffers

//go:generate flatc --go -o .. messages.fbs
//go:generate gofmt -w .
