# The worker in Ruby. `storm/src/worker.rs` describes the protocol.

require "quipu"

MASK = (1 << 64) - 1

class SplitMix
  def initialize(state) = @state = state

  def below(limit)
    @state = (@state + 0x9e3779b97f4a7c15) & MASK
    z = @state
    z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
    (z ^ z >> 31) % limit
  end
end

$stdout.sync = true
Quipu.configure(dir: ARGV[0])
# Python's metrics use exemplars, so these metrics must do the same.
SETTINGS = { exemplars: true }
JOBS = Quipu.registry.counter(:storm_jobs, docstring: "Jobs.", labels: [:job], store_settings: SETTINGS)
SECONDS = Quipu.registry.histogram(:storm_seconds, docstring: "Seconds.", labels: [:host],
                                   buckets: [0, 1, 2], store_settings: SETTINGS)
BOUND = {}

def act(tag, seed, count, done)
  random = SplitMix.new(seed)
  created = []
  count.times do |index|
    case random.below(16)
    when 0..6 then JOBS.increment(labels: { job: "j#{random.below(64)}" })
    when 7 then JOBS.increment(by: 0.5, labels: { job: "j#{random.below(64)}" })
    when 8..9
      host = "h#{random.below(8)}"
      SECONDS.observe(random.below(4), labels: { host: host })
    when 10..11
      job = "j#{random.below(64)}"
      (BOUND[job] ||= JOBS.with_labels(job: job)).increment
    when 12..13
      label = "c#{tag}-#{index}#{'x' * random.below(200)}"
      JOBS.increment(labels: { job: label })
      created << label
    else
      JOBS.remove({ job: created.pop }) unless created.empty?
    end
    $stdout.syswrite(done)
  end
end

$stdout.syswrite(Quipu.registry.path ? "S" : "M")
while (line = $stdin.gets)
  verb, *numbers = line.split
  numbers = numbers.map(&:to_i)
  if verb == "go"
    act(*numbers, ".")
    $stdout.syswrite("d")
  else
    child = fork do
      act(*numbers, ",")
      $stdout.syswrite("c")
      exit!(0)
    end
    Process.detach(child)
  end
end
