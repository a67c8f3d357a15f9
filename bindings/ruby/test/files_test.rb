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

  # Runs a program with the gem; returns its output and its warnings.
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

  # The registries share only the counts.
  def test_registries_on_one_file_have_names_of_their_own
    first, second = Array.new(2) { Quipu::Registry.new(dir: @dir) }
    one, other = [first, second].map { |registry| registry.counter(:a, docstring: "A.", labels: [:x]) }
    one.increment(labels: { x: 1 })
    assert_equal({ { x: "1" } => 1.0 }, other.values)
    first.unregister(:a)
    other.increment(labels: { x: 2 })
    assert_equal ['a_total{x="2"} 1'], samples(second)
    assert_empty samples(first)
    first.counter(:a, docstring: "A.", labels: [:x]).increment(labels: { x: 2 })
    assert_equal ['a_total{x="2"} 2'], samples(second)
    assert_equal samples(second), samples(first)
  end

  def test_a_directory_that_was_removed_is_made_again
    dir = File.join(@dir, "removed")
    labels = { a: "1" }
    make = ->(name) { Quipu::DataStore.new(dir: dir).for_metric(name, metric_type: :counter) }
    old = make.call(:m)
    old.increment(labels: labels, by: 5)
    FileUtils.rm_rf(dir)
    _, err = capture_io { 2.times { assert_equal({ labels => 5.0 }, old.all_values) } }
    assert_match(/\Aquipu: .*removed.*\n\z/, err)
    _, err = capture_io do
      fresh = make.call(:m)
      fresh.increment(labels: labels)
      assert_equal({ labels => 1.0 }, fresh.all_values)
    end
    assert_empty err
    assert_path_exists File.join(dir, "data_store.quipu")
    out, = run_ruby(<<~'RUBY', dir)
      store = Quipu::DataStore.new(dir: ARGV[0]).for_metric(:m, metric_type: :counter)
      puts store.all_values.sum { |_, value| value }
    RUBY
    assert_equal "1.0\n", out
    assert_equal({ labels => 5.0 }, old.all_values)
  end

  def test_a_file_that_was_replaced_is_opened_again
    registry = Quipu::Registry.new(dir: @dir)
    registry.counter(:c, docstring: "C.", labels: [:a]).increment(labels: { a: 1 }, by: 5)
    File.unlink(registry.path)
    assert_equal "1.0\n", run_ruby(COUNT, @dir).first
    again = Quipu::Registry.new(dir: @dir)
    assert_equal 1.0, again.counter(:c, docstring: "C.", labels: [:a]).get(labels: { a: 1 })
    _, err = capture_io { assert_equal ['c_total{a="1"} 5'], samples(registry) }
    assert_match(/replaced/, err)
  end

  def test_a_limit_that_is_reached_is_warned_of_by_a_scrape
    registry = Quipu::Registry.new(dir: @dir, limit: 1 << 20)
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    30_000.times { |n| counter.increment(labels: { a: "a value of some length #{n}" }) }
    _, err = capture_io { 2.times { registry.to_s } }
    assert_match(/\Aquipu: .*without their labels.*\n\z/, err)
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

  def test_limits_of_the_process_are_warned_of
    ["FSIZE, 2000", "NOFILE, 40"].each do |limit|
      out, err = run_ruby(<<~RUBY, @dir)
        Process.setrlimit(Process::RLIMIT_#{limit})
        places = [nil, ARGV[0]] + Array.new(30)
        all = places.each_with_index.map do |dir, i|
          registry = Quipu::Registry.new(dir: dir)
          counter = registry.counter(:"c\#{i}", docstring: "C.", labels: [:a])
          counter.increment(labels: { a: 1 })
          stores = Quipu::DataStore.new(dir: dir)
          metric = stores.for_metric(:m, metric_type: :counter)
          metric.increment(labels: { a: 1 })
          [counter.get(labels: { a: 1 }), metric.all_values.values, registry.to_s.include?('{a="1"} 1')]
        end
        p all.uniq
      RUBY
      assert_equal "[[1.0, [1.0], true]]\n", out, limit
      assert_match(/quipu: .*memory/, err, limit)
    end
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

  def test_new_files_have_the_mode_and_the_group_that_were_asked_for
    group = Process.uid.zero? ? 1 : Process.egid
    options = { dir: @dir, mode: 0o660, group: group }
    Quipu::DataStore.new(**options)
    Quipu::Registry.new(**options)
    named = File.join(@dir, "named")
    Quipu::DataStore.new(dir: named, group: Etc.getgrgid(group).name)
    permissions = lambda do |*path|
      stat = File.stat(File.join(*path))
      [stat.mode & 0o7777, stat.gid]
    end
    assert_equal [0o660, group], permissions.call(@dir, "data_store.quipu")
    assert_equal [0o660, group], permissions.call(@dir, "metrics.quipu")
    assert_equal [0o600, group], permissions.call(named, "data_store.quipu")
  end

  def test_modes_and_groups_that_cannot_be_meant_are_refused
    refused = lambda do |options, message|
      error = assert_raises(ArgumentError) { Quipu::DataStore.new(dir: @dir, **options) }
      assert_includes error.message, message
    end
    [640, -1, 0o1600, "0640", 6.4].each do |mode|
      refused.call({ mode: mode }, "mode #{mode.inspect} is not permission bits")
    end
    refused.call({ mode: 0o440 }, "mode 0o440 keeps the owner from reading or writing")
    refused.call({ group: "no such group" }, 'group "no such group" is unknown to the system')
    [-1, 2**32, :wheel].each { |group| refused.call({ group: group }, "group #{group.inspect} is not") }
    assert_empty Dir.children(@dir)
  end

  # Two programs use one directory and describe a metric differently.
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
    assert_path_exists File.join(@dir, "metrics.1.quipu")
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
