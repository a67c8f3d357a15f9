# Counts: the instructions of the hottest operations and of the arena, counted by callgrind.


.PHONY: test-counts
test-counts: tools ## Instruction counts: none risen, and no arena's above its peers'
	$(CARGO) run --locked --quiet --package quipu-bench-counts -- check

.PHONY: record-counts
record-counts: tools ## Record the instruction counts that test-counts compares with, and write their pages
	$(CARGO) run --locked --quiet --package quipu-bench-counts -- measure
	$(REPORT) arena arena-readme hottest
