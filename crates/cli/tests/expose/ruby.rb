# Writes files in the documented layout of Ruby's prometheus-client, because Debian does not package
# the gem: one file for each metric and process. Prints the aggregates line by line, like the text
# format.
#
# Usage: ruby.rb DIRECTORY

require "cgi"

DIRECTORY = ARGV.fetch(0)

def key(labels)
  labels.sort.map { |name, value| "#{CGI.escape(name)}=#{CGI.escape(value)}" }.join("&")
end

# Each entry is [labels, value, time].
def write(metric, pid, entries)
  body = entries.map do |labels, value, time|
    text = key(labels)
    text += " " * (8 - (text.bytesize + 4) % 8)
    [text.bytesize].pack("l<") + text.b + [value, time].pack("E2")
  end.join
  used = 8 + body.bytesize
  File.open(File.join(DIRECTORY, "metric_#{metric}___#{pid}.bin"), "wb") do |file|
    file.write([used, 0].pack("l<2") + body)
    file.truncate(1024 * 1024)
  end
end

def line(name, labels, value)
  escaped = labels.sort.map do |label, text|
    text = text.gsub("\\") { "\\\\" }.gsub("\"") { "\\\"" }.gsub("\n") { "\\n" }
    "#{label}=\"#{text}\""
  end
  value = value.to_i if value.finite? && value == value.to_i
  puts "#{name}#{escaped.empty? ? "" : "{#{escaped.join(",")}}"} #{value}"
end

# Calls the block with the values of all processes, grouped by labels.
def aggregate(files)
  files.values.flatten(1).group_by(&:first).each do |labels, entries|
    yield labels, entries.map { |entry| entry.drop(1) }
  end
end

def numbers(name, files)
  files.each { |pid, entries| write(name, pid, entries) }
  aggregate(files) { |labels, values| line(name, labels, yield(values)) }
end

sum = ->(values) { values.sum(&:first) }
hard = { "path" => "/a b+c", "user" => "\"x\\y\n\u82b1 & = ; %" }

numbers("http_requests_total", {
  10 => [[{ "code" => "200", "path" => "/" }, 3.0, 1.0], [{ "code" => "404", "path" => "" }, 1.0, 2.0]],
  11 => [[{ "code" => "200", "path" => "/" }, 4.5, 1.5]],
}, &sum)
numbers("hard_total", { 10 => [[hard, 1.0, 0.0]], 11 => [[hard, 2.0, 0.0]] }, &sum)
numbers("without_labels", { 10 => [[{}, 2.0, 0.0]], 12 => [[{}, 0.5, 0.0]] }, &sum)
# One name is a prefix of the other.
numbers("c", { 10 => [[{}, 1.0, 0.0]] }, &sum)
numbers("c___x", { 10 => [[{}, 10.0, 0.0]] }, &sum)
numbers("by_process", {
  10 => [[{ "k" => "a", "pid" => "10" }, 5.0, 0.0]],
  11 => [[{ "k" => "a", "pid" => "11" }, 6.0, 0.0]],
}, &sum)

gauges = {
  10 => [[{ "k" => "a" }, 5.0, 3.0], [{ "k" => "b" }, -1.0, 1.0]],
  11 => [[{ "k" => "a" }, 2.0, 9.0], [{ "k" => "b" }, -3.0, 0.5]],
  12 => [[{ "k" => "a" }, 7.0, 4.0]],
}
numbers("largest", gauges) { |values| values.map(&:first).max }
numbers("smallest", gauges) { |values| values.map(&:first).min }
numbers("latest", gauges) { |values| values.max_by(&:last).first }
numbers("level", gauges, &sum)

# Buckets are not cumulative here, and the sum is stored like a bucket.
histogram = {
  10 => { "1" => 2.0, "2.5" => 1.0, "10.0" => 0.0, "+Inf" => 1.0, "sum" => 20.5 },
  11 => { "1" => 1.0, "2.5" => 0.0, "10.0" => 4.0, "+Inf" => 0.0, "sum" => 30.0 },
}
histogram.each do |pid, buckets|
  write("size", pid, buckets.map { |le, count| [{ "kind" => "x", "le" => le }, count, 0.0] })
end
totals = histogram.values.reduce { |a, b| a.merge(b) { |_, x, y| x + y } }
count = 0
totals.each do |le, value|
  if le == "sum"
    line("size_sum", { "kind" => "x" }, value)
  else
    count += value
    puts "size_bucket{kind=\"x\",le=\"#{le}\"} #{count.to_i}"
  end
end
line("size_count", { "kind" => "x" }, count)

[10, 11].each do |pid|
  entries = { "count" => 2.0, "sum" => pid + 0.5 }.map { |q, value| [{ "quantile" => q }, value, 0.0] }
  write("wait", pid, entries)
end
line("wait_sum", {}, 22.0)
line("wait_count", {}, 4.0)
