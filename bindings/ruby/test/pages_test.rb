# frozen_string_literal: true

require_relative "helper"
require "rbconfig"

# The Ruby examples of the repository's README and of the pages in docs.
class PagesTest < Minitest::Test
  ROOT = File.expand_path("../../..", __dir__)
  LIBRARY = File.expand_path("../lib", __dir__)

  def test_the_examples_of_the_pages_run
    ran = 0
    [File.join(ROOT, "README.md"), *Dir[File.join(ROOT, "docs/**/*.md")]].each do |page|
      File.read(page).scan(/([^\n]*)\n```ruby\n(.*?)^```$/m) do |before, program|
        next if before.start_with?("<!-- not run: ")

        run_example(program, page)
        ran += 1
      end
    end
    assert_operator ran, :>=, 3
  end

  private

  def run_example(program, page)
    Dir.mktmpdir do |directory|
      program = program.gsub("/dev/shm/my_app", directory)
      output, status = Open3.capture2e(RbConfig.ruby, "-I", LIBRARY, "-r", "quipu", "-e", program,
                                       chdir: directory)
      assert_predicate status, :success?, "#{page}:\n#{program}#{output}"
    end
  end
end
