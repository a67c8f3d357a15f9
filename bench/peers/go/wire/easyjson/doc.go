// Package easyjson has the messages with the methods that mailru/easyjson generates.
//
// Versions after 0.9.1 refuse NaN and the infinities; this one writes invalid JSON for them, like
// the version in the original comparison.
package easyjson

//go:generate env GOFLAGS=-mod=mod go run github.com/mailru/easyjson/easyjson@v0.9.1 -all -output_filename messages_easyjson.go messages.go
