# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "quipu-metrics"
  spec.version = File.read(File.join(__dir__, "lib/quipu/version.rb"))[/VERSION = "(.*)"/, 1]
  spec.authors = ["The quipu maintainers"]
  spec.summary = "Prometheus metrics shared by all processes of a pre-fork server."
  spec.description = "Counters, gauges, histograms and summaries in memory that all workers share: " \
                     "every worker shows the same numbers, and an increment takes less than 0.2 " \
                     "microseconds. Also a data store for the gem prometheus-client."
  spec.homepage = "https://github.com/quipu-metrics/quipu"
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.0"
  spec.metadata = {
    "source_code_uri" => "https://github.com/quipu-metrics/quipu/tree/main/bindings/ruby",
    "changelog_uri" => "https://github.com/quipu-metrics/quipu/blob/main/CHANGELOG.md",
    "documentation_uri" => "https://github.com/quipu-metrics/quipu/blob/main/docs/ruby.md",
    "bug_tracker_uri" => "https://github.com/quipu-metrics/quipu/issues",
    "rubygems_mfa_required" => "true"
  }

  # `rake gem` copies the crates next to this file, because the native part cannot be built without
  # them. `rake gem:native` packages the built library instead of the extension.
  Dir.chdir(__dir__) do
    spec.files = Dir["lib/**/*.rb", "sig/**/*.rbs", "ext/**/*.{rb,rs,toml,lock}", "crates/**/*", "Cargo.toml",
                     "README.md", "LICENSE-*"].select { |file| File.file?(file) }
                                              .reject { |file| file.include?("/target/") }
  end
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/quipu/extconf.rb"]
end
