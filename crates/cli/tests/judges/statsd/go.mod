module quipu/judges/statsd

go 1.24
