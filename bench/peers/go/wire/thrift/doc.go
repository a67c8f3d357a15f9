// Package thrift contains the messages that apache/thrift's compiler, version 0.17, generates.
package thrift

//go:generate sh generate.sh
