# frozen_string_literal: true

require_relative "lib/quipu/version"

Gem::Specification.new do |spec|
  spec.name = "quipu"
  spec.version = Quipu::VERSION
  spec.authors = ["The quipu maintainers"]
  spec.summary = "Metrics for Prometheus that all processes of a pre-fork server share."
  spec.description = "Counters, gauges, histograms and summaries in memory that all workers share: " \
                     "one set of numbers, whichever worker is scraped, at less than 0.2 microseconds " \
                     "an increment. Also a data store for the gem prometheus-client."
  spec.homepage = "https://github.com/quipu-metrics/quipu"
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.0"
  spec.metadata = { "rubygems_mfa_required" => "true" }

  # `rake gem` puts the crates beside this file, without which the native part cannot be built.
  Dir.chdir(__dir__) do
    spec.files = Dir["lib/**/*.rb", "ext/**/*.{rb,rs,toml,lock}", "crates/**/*", "Cargo.toml",
                     "README.md", "LICENSE-*"].select { |file| File.file?(file) }
                                              .reject { |file| file.include?("/target/") }
  end
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/quipu/extconf.rb"]
end
