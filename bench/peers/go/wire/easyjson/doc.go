// Package easyjson contains the messages with the methods that mailru/easyjson generates.
//
// Versions after 0.9.1 refuse NaN and the infinities. This version writes invalid JSON for these
// values, like the version in the original comparison.
package easyjson

//go:generate env GOFLAGS=-mod=mod go run github.com/mailru/easyjson/easyjson@v0.9.1 -all -output_filename messages_easyjson.go messages.go
