"""The worker in Python. `storm/src/worker.rs` describes the protocol."""

import os
import sys

MASK = (1 << 64) - 1


class SplitMix:
    def __init__(self, state):
        self.state = state

    def below(self, end):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return (z ^ z >> 31) % end


def main():
    import quipu_metrics as quipu

    quipu.configure(sys.argv[1])
    jobs = quipu.Counter("storm_jobs", "Jobs.", ["job"])
    seconds = quipu.Histogram("storm_seconds", "Seconds.", ["host"], buckets=[0, 1, 2])
    bound = {}

    def act(tag, seed, count, done):
        random = SplitMix(seed)
        created = []
        for index in range(count):
            kind = random.below(16)
            if kind <= 6:
                jobs.labels(f"j{random.below(64)}").inc()
            elif kind == 7:
                jobs.labels(f"j{random.below(64)}").inc(0.5)
            elif kind <= 9:
                host = f"h{random.below(8)}"
                seconds.labels(host).observe(random.below(4))
            elif kind <= 11:
                job = f"j{random.below(64)}"
                if job not in bound:
                    bound[job] = jobs.labels(job)
                bound[job].inc()
            elif kind <= 13:
                label = f"c{tag}-{index}" + "x" * random.below(200)
                jobs.labels(label).inc()
                created.append(label)
            elif created:
                try:
                    jobs.remove(created.pop())
                except KeyError:
                    pass  # It was counted in the overflow.
            os.write(1, done)

    os.write(1, b"S" if quipu.REGISTRY._own_segment.path else b"M")
    for line in sys.stdin:
        verb, *numbers = line.split()
        numbers = map(int, numbers)
        if verb == "go":
            act(*numbers, b".")
            os.write(1, b"d")
        elif os.fork() == 0:
            act(*numbers, b",")
            os.write(1, b"c")
            os._exit(0)
        else:
            import signal

            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


main()
