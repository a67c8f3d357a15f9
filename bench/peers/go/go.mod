module quipu/bench/peers

go 1.24

require github.com/paulbellamy/ratecounter v0.2.0
