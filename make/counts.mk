# Counts: the instructions of the hottest operations and of the arena, counted by callgrind.


COUNTS = $(CARGO) build --quiet $(WORKSPACE) --bin counts && target/debug/counts

.PHONY: test-counts
test-counts: tools ## Instruction counts: none risen, and no arena's above its peers'
	$(COUNTS) check

.PHONY: record-counts
record-counts: tools ## Record the instruction counts that test-counts compares with, and write their pages
	$(COUNTS) measure
	$(REPORT) arena arena-readme hottest
