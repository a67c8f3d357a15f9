# Takes one turn of a Ruby contender at a workload of the benchmark `stores`; prints records.
#
#   ruby stores.rb --workload increments --contender mmap --tmpfs DIR --disk DIR
#
# This program empties the folders, so you must not pass folders with other files.

require "fileutils"
require "optparse"
require_relative "measure"
require_relative "raw"
require_relative "workloads"
require_relative "contenders/stores"

# The options of the program.
class Options
  attr_accessor :workload, :contender, :tmpfs, :disk, :redis, :redis_port, :client_ruby

  # An empty folder in the given place, or nil if the place needs none.
  def folder(place)
    root = {"tmpfs" => tmpfs, "disk" => disk}[place]
    return unless root

    @folders = (@folders || 0) + 1
    FileUtils.mkdir_p(File.join(root, "ruby-#{Process.pid}-#{@folders}")).first
  end
end

options = Options.new
OptionParser.new do |parser|
  parser.on("--workload NAME") { |value| options.workload = value }
  parser.on("--contender NAME") { |value| options.contender = value }
  parser.on("--tmpfs DIR") { |value| options.tmpfs = value }
  parser.on("--disk DIR") { |value| options.disk = value }
  parser.on("--redis SOCKET") { |value| options.redis = value }
  parser.on("--redis-port PORT", Integer) { |value| options.redis_port = value }
  parser.on("--client-ruby DIR") { |value| options.client_ruby = value }
  parser.on("--gem DIR") { |value| $LOAD_PATH.unshift(File.join(value, "lib")) }
  parser.on("--quick") { Measure.quick = true }
end.parse!

if options.contender == "raw"
  Raw.public_send(options.workload, options)
else
  # Load only the file of the contender, because two files define the same module.
  files = {"mmap" => "mmap", "quipu" => "quipu", "quipu-store" => "quipu",
           "quipu-client-ruby" => "quipu", "synchronized" => "client_ruby",
           "direct-file-store" => "client_ruby", "no-store" => "client_ruby"}
  file = files[options.contender]
  require_relative "contenders/#{file}" if file
  contender = ObjectSpace.each_object(Class).find do |type|
    type < Contender && type.respond_to?(:key) && type.key == options.contender
  end
  abort "stores.rb: no contender is named #{options.contender}" unless contender
  Workloads.public_send(options.workload, contender.new(options), options)
end
