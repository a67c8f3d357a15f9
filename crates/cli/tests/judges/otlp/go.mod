module otlp

go 1.24

require github.com/prometheus/otlptranslator v1.0.0
