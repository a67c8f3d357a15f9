// Times operations on pinned threads and prints figures as JSON lines, with the format and the method
// of the Rust harness.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace measure {

using Clock = std::chrono::steady_clock;

inline void print(const std::string& name, const char* subject, unsigned threads,
                  const char* metric, double nanos) {
  std::printf(
      "{\"case\":\"%s\",\"subject\":\"%s\",\"threads\":%u,\"metric\":\"%s\",\"unit\":\"ns\","
      "\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,\"runs\":1}\n",
      name.c_str(), subject, threads, metric, nanos, nanos, nanos);
}

inline unsigned cores() { return std::max(1u, std::thread::hardware_concurrency()); }

inline void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % cores(), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// One run: the time in ns from the start of the first thread to the end of the last. The body does n
// operations on a thread.
template <typename Body>
double once(unsigned threads, std::uint64_t n, const Body& body) {
  std::atomic<unsigned> ready{0};
  std::vector<Clock::time_point> starts(threads), ends(threads);
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      pin(thread);
      ready.fetch_add(1);
      while (ready.load() < threads) std::this_thread::yield();
      starts[thread] = Clock::now();
      body(thread, n);
      ends[thread] = Clock::now();
    });
  }
  for (auto& thread : running) thread.join();
  const auto first = *std::min_element(starts.begin(), starts.end());
  const auto last = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double, std::nano>(last - first).count();
}

// The core time of an operation: the elapsed time divided by the operations per core.
template <typename Body>
double core_time(double run_nanos, unsigned threads, const Body& body) {
  std::uint64_t n = 1;
  for (;;) {
    const double elapsed = once(threads, n, body);
    if (elapsed >= run_nanos / 4) {
      n = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(n * run_nanos / elapsed));
      break;
    }
    n *= 4;
  }
  const double elapsed = once(threads, n, body);
  return elapsed * std::min(threads, cores()) / (static_cast<double>(n) * threads);
}

}  // namespace measure
