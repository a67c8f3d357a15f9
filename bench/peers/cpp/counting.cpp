// Takes one turn of prometheus-cpp at a workload of the Rust program of the same name, and prints a
// JSON line for each figure. For a workload that it does not know, it prints nothing.
//
// A series is found by Family::Add, the only call that takes labels: they are a map of strings.

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <ostream>
#include <random>
#include <streambuf>
#include <string>
#include <vector>

#include "measure.h"

namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

constexpr char kSubject[] = "prometheus-cpp " VERSION " (C++)";

const std::array<std::string, 3> kKinds = {"user", "internal", "network"};
const std::array<std::string, 6> kRoutes = {
    "/api/v1/users",        "/api/v1/users/:id",          "/api/v1/products",
    "/api/v1/products/:id", "/api/v1/products/:id/owner", "/api/v1/products/:id/purchase",
};
const Histogram::BucketBoundaries kBounds = {0.001, 0.002, 0.004, 0.008,
                                             0.016, 0.032, 0.064, 0.128};

// The length of the tables that a loop cycles through.
constexpr std::size_t kInputs = 4096;

// How much to measure.
struct Turn {
  double run_nanos = 60e6;
  std::size_t divisor = 1;

  std::size_t series(std::size_t full) const {
    return std::max<std::size_t>(full / divisor, 100);
  }

  template <typename Body>
  void time(const std::string& name, unsigned threads, const Body& body) const {
    const double nanos = measure::core_time(run_nanos, threads, body);
    measure::print(name, kSubject, threads, "core time", nanos);
  }
};

std::string with_commas(std::size_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

Family<Counter>& counters(Registry& registry) {
  return prometheus::BuildCounter()
      .Name("http_request_errors_total")
      .Help("Errors of HTTP requests.")
      .Register(registry);
}

Family<Histogram>& histograms(Registry& registry) {
  return prometheus::BuildHistogram()
      .Name("http_request_seconds")
      .Help("Time to answer.")
      .Register(registry);
}

using Pair = std::array<const std::string*, 2>;

std::vector<Pair> pairs(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Pair> table;
  for (std::size_t i = 0; i < kInputs; ++i) {
    table.push_back({&kKinds[random() % kKinds.size()], &kRoutes[random() % kRoutes.size()]});
  }
  return table;
}

Labels labels(const Pair& pair) { return {{"kind", *pair[0]}, {"route", *pair[1]}}; }

// The three labels of each series, in random order.
std::vector<std::array<std::string, 3>> users(std::size_t series) {
  std::mt19937 random(1);
  std::vector<std::array<std::string, 3>> keys;
  for (std::size_t i = 0; i < series; ++i) {
    std::string number = std::to_string(i);
    number.insert(0, number.size() < 3 ? 3 - number.size() : 0, '0');
    keys.push_back({kKinds[random() % kKinds.size()], kRoutes[random() % kRoutes.size()],
                    "Gisela Hernandez " + number});
  }
  std::shuffle(keys.begin(), keys.end(), random);
  return keys;
}

Labels labels(const std::array<std::string, 3>& key) {
  return {{"kind", key[0]}, {"route", key[1]}, {"user", key[2]}};
}

void handle(const Turn& turn) {
  Registry registry;
  Counter& counter = counters(registry).Add({});
  for (unsigned threads : {1u, 2u, 4u, 8u}) {
    turn.time("handle/add", threads, [&](unsigned, std::uint64_t n) {
      for (; n > 0; --n) counter.Increment();
    });
  }
}

void route(const Turn& turn) {
  Registry registry;
  auto& family = counters(registry);
  const std::array<std::vector<Pair>, 2> tables = {pairs(1), pairs(2)};
  for (unsigned threads : {1u, 2u}) {
    turn.time("enum and known text/add", threads, [&](unsigned thread, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        family.Add(labels(tables[thread][i % kInputs])).Increment();
      }
    });
  }
}

void user(const Turn& turn) {
  Registry registry;
  auto& family = counters(registry);
  const auto keys = users(turn.series(18'000));
  for (const auto& key : keys) family.Add(labels(key)).Increment();
  const std::string name = "three labels/add among " + with_commas(keys.size());
  // Each run continues where the previous one ended.
  std::atomic<std::uint64_t> next{0};
  for (unsigned threads : {1u, 2u}) {
    turn.time(name, threads, [&](unsigned, std::uint64_t n) {
      const std::uint64_t start = next.fetch_add(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        family.Add(labels(keys[(start + i) % keys.size()])).Increment();
      }
    });
  }
}

std::vector<double> observations(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<double> values;
  for (std::size_t i = 0; i < kInputs; ++i) values.push_back(0.0005 * std::exp2(9 * unit(random)));
  return values;
}

void histogram(const Turn& turn) {
  Registry registry;
  auto& family = histograms(registry);
  const std::array<std::vector<double>, 2> values = {observations(1), observations(2)};
  Histogram& histogram = family.Add({}, kBounds);
  for (unsigned threads : {1u, 2u}) {
    turn.time("histogram/observe", threads, [&](unsigned thread, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) histogram.Observe(values[thread][i % kInputs]);
    });
  }
  const std::array<std::vector<Pair>, 2> tables = {pairs(1), pairs(2)};
  for (unsigned threads : {1u, 2u}) {
    turn.time("histogram/observe among 18", threads, [&](unsigned thread, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        auto& series = family.Add(labels(tables[thread][i % kInputs]), kBounds);
        series.Observe(values[thread][i % kInputs]);
      }
    });
  }
}

// A buffer that keeps its memory from one scrape to the next.
class Page : public std::streambuf {
 public:
  void clear() { text_.clear(); }
  std::size_t size() const { return text_.size(); }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    text_.append(bytes, static_cast<std::size_t>(count));
    return count;
  }

  int_type overflow(int_type byte) override {
    text_.push_back(static_cast<char>(byte));
    return byte;
  }

 private:
  std::string text_;
};

void encode(const Turn& turn) {
  std::vector<std::size_t> sizes = {turn.series(18'000), turn.series(100'000)};
  if (sizes[0] == sizes[1]) sizes.pop_back();
  for (std::size_t series : sizes) {
    Registry registry;
    auto& family = counters(registry);
    for (const auto& key : users(series)) family.Add(labels(key)).Increment();
    Page page;
    std::ostream out(&page);
    const prometheus::TextSerializer serializer;
    const auto scrape = [&] {
      page.clear();
      serializer.Serialize(out, registry.Collect());
    };
    measure::pin(0);
    scrape();
    const auto start = measure::Clock::now();
    double elapsed = 0;
    unsigned scrapes = 0;
    while (scrapes == 0 || elapsed < turn.run_nanos) {
      scrape();
      ++scrapes;
      elapsed = std::chrono::duration<double, std::nano>(measure::Clock::now() - start).count();
    }
    const std::string name = "encode/" + with_commas(series) + " series";
    measure::print(name, kSubject, 1, "time", elapsed / scrapes / static_cast<double>(series));
  }
}

}  // namespace

int main(int count, char** arguments) {
  Turn turn;
  std::string workload;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--quick") == 0) {
      turn = {2e6, 200};
    } else if (std::strcmp(arguments[i], "-workload") == 0 && i + 1 < count) {
      workload = arguments[++i];
    } else {
      std::cerr << "unknown argument " << arguments[i] << "\n";
      return 2;
    }
  }
  if (workload == "handle") handle(turn);
  if (workload == "route") route(turn);
  if (workload == "user") user(turn);
  if (workload == "histogram") histogram(turn);
  if (workload == "encode") encode(turn);
  return 0;
}
