# Generates messages.go from messages.thrift. The compiler requires its own folder, and its output
# is not formatted by gofmt.
set -e
folder=$(mktemp -d)
thrift --gen go:thrift_import=github.com/apache/thrift/lib/go/thrift,skip_remote -out "$folder" \
	messages.thrift
gofmt "$folder/thrift/messages.go" > messages.go
rm -r "$folder"
