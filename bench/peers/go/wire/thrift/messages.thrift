namespace go thrift

struct Counter {
  1: binary ID
  2: i64 Value
}

struct BatchTimer {
  1: binary ID
  2: list<double> Values
}

struct Gauge {
  1: binary ID
  2: double Value
}

struct MetricUnion {
  1: i8 Type
  2: binary ID
  3: i64 CounterVal
  4: list<double> BatchTimerVal
  5: double GaugeVal
}
