// Package protobuf contains the messages that golang/protobuf's successor generates.
//
// To generate them again, you need protoc, and protoc-gen-go on the path:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
package protobuf

//go:generate protoc --go_out=. --go_opt=paths=source_relative messages.proto
