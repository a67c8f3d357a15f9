# Generates messages.go of messages.thrift. The compiler wants a folder of its own, and does not
# lay its text out as gofmt does.
set -e
folder=$(mktemp -d)
thrift --gen go:thrift_import=github.com/apache/thrift/lib/go/thrift,skip_remote -out "$folder" \
	messages.thrift
gofmt "$folder/thrift/messages.go" > messages.go
rm -r "$folder"
