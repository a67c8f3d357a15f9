# frozen_string_literal: true

require "helper"
require "open3"

class FilesTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir
  end

  def teardown
    system("umount", @mount) if @mount
    FileUtils.rm_rf(@dir)
  end

  # Runs a program with the gem; answers its output and its warnings.
  def run_ruby(code, *arguments)
    command = ["ruby", "-W2", *$LOAD_PATH.flat_map { |path| ["-I", path.to_s] }, "-rquipu", "-e", code]
    out, err, status = Open3.capture3(*command, *arguments)
    assert status.success?, err
    [out, err]
  end

  COUNT = <<~'RUBY'
    registry = Quipu::Registry.new(dir: ARGV[0])
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    counter.increment(labels: { a: 1 })
    puts counter.get(labels: { a: 1 })
    registry.to_s
  RUBY

  def test_counts_outlive_processes
    3.times { |i| assert_equal ["#{i + 1}.0\n", ""], run_ruby(COUNT, @dir) }
  end

  def test_two_registries_on_one_file_are_one
    path = File.join(@dir, "here.quipu")
    first = Quipu::Registry.new(path: path)
    second = Quipu::Registry.new(path: path)
    first.counter(:a, docstring: "A.").increment
    assert_includes samples(second), "a_total 1"
  end

  def test_damaged_files_are_set_aside
    file = File.join(@dir, "metrics.quipu")
    run_ruby(COUNT, @dir)
    good = File.binread(file)
    ["", good[0, 100], good[0, good.size / 2], good[0, 8] + "\xff\xff\xff\xff".b + good[12..],
     good[0, 64] + "\xff".b * (good.size - 64)].each do |bytes|
      FileUtils.rm_f(Dir[File.join(@dir, "*")])
      File.binwrite(file, bytes)
      out, err = run_ruby(COUNT, @dir)
      assert_equal "1.0\n", out
      next if bytes.empty?

      assert_match(/quipu: .*aside/, err, bytes[0, 20])
      assert_equal 1, err.lines.size, err
      assert_path_exists "#{file}.aside-1"
    end
  end

  def test_files_of_others_are_left_alone
    file = File.join(@dir, "metrics.quipu")
    ["x", "rubbish" * 10_000].each do |bytes|
      File.binwrite(file, bytes)
      out, err = run_ruby(COUNT, @dir)
      assert_equal "1.0\n", out
      assert_match(/quipu: .*memory/, err)
      assert_equal bytes, File.binread(file)
    end
  end

  def test_a_directory_that_cannot_be
    File.write(File.join(@dir, "file"), "")
    out, err = run_ruby(COUNT, File.join(@dir, "file", "dir"))
    assert_equal "1.0\n", out
    assert_match(/quipu: .*memory/, err)
    out, err = run_ruby(COUNT, "/proc/quipu")
    assert_equal "1.0\n", out
    assert_equal 1, err.lines.size, err
  end

  def test_a_read_only_directory
    mount_tmpfs("size=1m")
    system("mount", "-o", "remount,ro", @mount, exception: true)
    out, err = run_ruby(COUNT, @mount)
    assert_equal "1.0\n", out
    assert_equal 1, err.lines.size, err
  end

  def test_a_full_disk_drops_and_warns_once
    mount_tmpfs("size=2m")
    out, err = run_ruby(<<~'RUBY', @mount)
      registry = Quipu::Registry.new(dir: ARGV[0])
      counter = registry.counter(:c, docstring: "C.", labels: [:a])
      60_000.times { |n| counter.increment(labels: { a: "a value that is long #{n}" }) }
      counter.increment(labels: { a: "a value that is long 1" })
      puts counter.get(labels: { a: "a value that is long 1" })
      puts counter.values.values.sum
      puts registry.dropped.positive?
      3.times { registry.to_s }
      store = Quipu::DataStore.new(dir: ARGV[0]).for_metric(:s, metric_type: :counter)
      10.times { |n| store.increment(labels: { a: n }) }
      store.all_values
    RUBY
    assert_equal "2.0\n60001.0\ntrue\n", out
    refute_empty err
    assert_equal err.lines.uniq, err.lines
    assert_operator err.lines.size, :<=, 3, err
  end

  # Two programs with one directory, of which each describes a metric in its way.
  def test_other_descriptions_are_kept_apart
    run_ruby(COUNT, @dir)
    out, err = run_ruby(<<~'RUBY', @dir)
      registry = Quipu::Registry.new(dir: ARGV[0])
      counter = registry.counter(:c, docstring: "Other.", labels: %i[a b])
      counter.increment(labels: { a: 1, b: 2 })
      puts counter.get(labels: { a: 1, b: 2 })
      puts registry.to_s.lines.grep(/^c_total/)
    RUBY
    assert_equal "1.0\n", out.lines.first
    assert_includes out, "c_total{a=\"1\",b=\"2\"} 1\n"
    assert_match(/quipu: /, err)
  end

  private

  def mount_tmpfs(options)
    mount = File.join(@dir, "mount")
    FileUtils.mkdir_p(mount)
    unless system("mount", "-t", "tmpfs", "-o", options, "tmpfs", mount, err: File::NULL)
      skip "NOT RUN: mounting a tmpfs needs root"
    end
    @mount = mount
  end
end
