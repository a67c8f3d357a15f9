# Storms: random faults and power losses, while processes of three languages count in one file.

# The number of rounds, and the seed of all choices; 0 draws a random seed.
ROUNDS ?= 10000
SEED ?= 0
STORM := target/debug/storm

.PHONY: storm-tools
storm-tools: wheel $(NATIVE)
	$(CARGO) build --quiet $(WORKSPACE) --bin storm

.PHONY: storm
storm: storm-tools ## Random sequences of faults: ROUNDS=10000 SEED=0
	$(STORM) run --rounds $(ROUNDS) --seed $(SEED) --python $(PYTHON_VENV)/bin/python

.PHONY: power-loss
power-loss: storm-tools ## Power losses at random moments: ROUNDS=10000 SEED=0
	$(STORM) power --rounds $(ROUNDS) --seed $(SEED)

# A short run of both, always with the same seed. The timing of the processes still varies.
.PHONY: test-storm
test-storm: storm-tools ## A short run of make storm and of make power-loss
	$(STORM) run --rounds 300 --seed 1 --python $(PYTHON_VENV)/bin/python
	$(STORM) power --rounds 400 --seed 1
