# frozen_string_literal: true

# The packages: the gem that builds the native part at its installation, and the gem that contains
# the built library.

require "open3"
require "rubygems/package"
require "tmpdir"

VERSION = File.read("lib/quipu/version.rb")[/VERSION = "(.*)"/, 1]
# The crates of the native part.
CRATES = %w[arena derive quipu segment store window].freeze
GEMSPEC = "quipu-metrics.gemspec"
PACKAGES = File.expand_path("pkg")
SOURCE_GEM = File.join(PACKAGES, "quipu-metrics-#{VERSION}.gem")

# The platform of the precompiled gem.
PLATFORM = "#{RbConfig::CONFIG["host_cpu"]}-linux"
NATIVE_GEM = File.join(PACKAGES, "quipu-metrics-#{VERSION}-#{PLATFORM}.gem")

# The interpreters whose versions the precompiled gem supports. The C interface of Ruby changes with
# each minor version, so each one needs its own library.
RUBIES = ENV.fetch("RUBIES", RbConfig.ruby).split

# Copies the files that both gems contain to an empty directory; returns the directory.
def stage(name)
  directory = File.join(PACKAGES, name)
  FileUtils.rm_rf(directory)
  FileUtils.mkdir_p(directory)
  FileUtils.cp_r(["lib", "sig", GEMSPEC, "README.md"], directory)
  FileUtils.rm_f(Dir[File.join(directory, "lib/quipu/native.*")])
  FileUtils.cp(Dir[File.join(ROOT, "LICENSE-*")], directory)
  directory
end

# Copies the crates of the native part. In the gem, their paths differ, and they need a separate
# workspace.
def stage_crates(directory)
  extension = File.join(directory, "ext/quipu")
  FileUtils.mkdir_p([extension, File.join(directory, "crates")])
  FileUtils.cp_r(%w[Cargo.toml Cargo.lock extconf.rb src].map { |file| File.join(EXTENSION, file) }, extension)
  CRATES.each do |crate|
    to = File.join(directory, "crates", crate)
    FileUtils.mkdir_p(to)
    FileUtils.cp_r(%w[Cargo.toml README.md src].map { |file| File.join(ROOT, "crates", crate, file) }
                                               .select { |file| File.exist?(file) }, to)
  end
  # Examples, tests and benches are not packaged.
  Dir[File.join(directory, "crates/*/Cargo.toml")].each do |crate|
    File.write(crate, File.read(crate).gsub(/^\[\[(?:example|test|bench)\]\]\n(?:[^\[\n].*\n|\n)*/, ""))
  end
  manifest = File.join(extension, "Cargo.toml")
  File.write(manifest, File.read(manifest).gsub("../../../../crates/", "../../crates/"))
  workspace = File.read(File.join(ROOT, "Cargo.toml"))[/^\[workspace\.package\].*/m]
  members = CRATES.map { |crate| "    \"crates/#{crate}\",\n" }.join
  File.write(File.join(directory, "Cargo.toml"),
             "[workspace]\nresolver = \"3\"\nmembers = [\n#{members}]\nexclude = [\"ext\"]\n\n" \
             "#{workspace}")
end

# Builds the gem of a directory, after the block has changed its specification.
def package(directory)
  Dir.chdir(directory) do
    spec = Gem::Specification.load(File.join(directory, GEMSPEC))
    yield spec if block_given?
    file = Gem::Package.build(spec)
    FileUtils.mv(file, PACKAGES)
    puts "#{File.join(PACKAGES, file)}: #{File.size(File.join(PACKAGES, file)) / 1024} KiB"
  end
end

# Returns the minor version of an interpreter, such as 3.1.
def minor_version(ruby)
  `#{ruby} -e 'print RUBY_VERSION[/\\A\\d+\\.\\d+/]'`
end

# Passes the native part for an interpreter to the block. A test of the source gem has built it.
def build_native(ruby)
  return yield(NATIVE) if @is_installed && ruby == RbConfig.ruby

  Dir.chdir(BUILD) do
    sh ruby, "#{EXTENSION}/extconf.rb"
    sh "make"
    yield File.expand_path(File.basename(NATIVE))
  end
end

desc "Build the gem that contains the source of the native part, in pkg"
task :gem do
  directory = stage("source")
  stage_crates(directory)
  package(directory)
end

desc "Build the gem that contains the built native part, for this machine's platform, in pkg"
task "gem:native" do
  directory = stage("native")
  versions = RUBIES.map do |ruby|
    version = minor_version(ruby)
    library = File.join(directory, "lib/quipu", version, File.basename(NATIVE))
    FileUtils.mkdir_p([BUILD, File.dirname(library)])
    build_native(ruby) { |built| FileUtils.cp(built, library) }
    version
  end
  oldest, newest = versions.minmax_by { |version| Gem::Version.new(version) }
  package(directory) do |spec|
    spec.platform = Gem::Platform.new(PLATFORM)
    spec.extensions = []
    spec.files += Dir["lib/quipu/*/native.*"]
    # `bump` increments the last but one number. The suffix excludes the next version's previews.
    spec.required_ruby_version = [">= #{oldest}", "< #{Gem::Version.new("#{newest}.0").bump}.dev"]
  end
end

# Installs a gem into an empty directory, and runs programs with it from there.
class Installation
  # Bundler loads the gem by its name. Forks share their counts, and no file is loaded from elsewhere.
  PROGRAM = <<~'RUBY'
    require "bundler"
    Bundler.require
    counter = Quipu.registry.counter(:c, docstring: "C.", labels: [:a])
    Process.wait(fork { counter.increment(labels: { a: 1 }) })
    abort "a fork counted separately" unless counter.get(labels: { a: 1 }) == 1
    others = $LOADED_FEATURES.grep(/quipu/).reject { |file| file.start_with?(Gem.dir) }
    abort "loaded from elsewhere: #{others}" unless others.empty?
  RUBY

  def initialize(home, environment)
    @home = home
    @environment = { "GEM_HOME" => home, "GEM_PATH" => home, "RUBYLIB" => nil, "RUBYOPT" => nil,
                     **environment }
  end

  def install(gem)
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    run(File.join(RbConfig::CONFIG["bindir"], "gem"), "install", "--local", "--no-document", gem)
    puts format("installed in %.1f s", Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
  end

  # Runs a program and the example of each README.
  def check
    # Bundler requires a source, and does not read this one, because the gem is already installed.
    File.write(File.join(@home, "Gemfile"), "source \"file://#{@home}\"\ngem \"quipu-metrics\"\n")
    run("-e", PROGRAM)
    [File.join(ROOT, "README.md"), "README.md"].each do |readme|
      example = File.read(readme)[/^```ruby\n(require "quipu"\n.*?)^```$/m, 1]
      output = run("-e", example)
      raise "#{readme}: #{output}" unless output.include?('requests_total{code="200",path="/x"} 1')
    end
  end

  # Returns the path of the native part.
  def native
    Dir[File.join(@home, "gems/*/lib/quipu/**", File.basename(NATIVE))].fetch(0)
  end

  private

  def run(*arguments)
    output, status = Open3.capture2e(@environment, RbConfig.ruby, *arguments, chdir: @home)
    raise "#{arguments.join(" ")}:\n#{output}" unless status.success?

    output
  end
end

desc "Install the source gem into an empty directory, and use it; later tasks use its native part"
task test_gem: :gem do
  Dir.mktmpdir do |home|
    target = ENV.fetch("CARGO_TARGET_DIR", File.join(EXTENSION, "target"))
    installation = Installation.new(home, "CARGO_TARGET_DIR" => target)
    installation.install(SOURCE_GEM)
    installation.check
    use(installation.native)
    @is_installed = true
  end
end

desc "Install the precompiled gem without a compiler into an empty directory, and use it"
task test_native_gem: "gem:native" do
  Dir.mktmpdir do |home|
    # Neither cargo nor a compiler nor make is in this directory.
    installation = Installation.new(home, "PATH" => home, "CARGO" => nil)
    installation.install(NATIVE_GEM)
    installation.check
  end
end
