// Package msgp contains the messages with the methods that tinylib/msgp generates.
package msgp

//go:generate go run github.com/tinylib/msgp@v1.6.5 -file messages.go -o messages_msgp.go -io=false -tests=false
