# A release: checks, packages and notes. Nothing is uploaded.

.PHONY: release
release: ## Check everything, and build all files of a release into target/dist: an hour or more
	@test -z "$$(git status --porcelain)" || { echo "commit or remove: $$(git status --short)"; exit 1; }
	python3 .ci/release.py check
	python3 .ci/release.py dated
	$(MAKE) tools lint features minimal-versions msrv deny
	$(MAKE) test
	rm -rf $(DIST)
	$(MAKE) package-crates package
	$(MAKE) test-packages test-packages-twice
	$(MAKE) release-notes
	@echo "Known vulnerabilities of dependencies were not checked, because their database needs the network:"
	@echo "cargo deny check advisories, with --manifest-path for each of $(DENIED_WORKSPACES)"
	@echo "target/dist is complete. Next: tag the commit (git tag --sign --cleanup=whitespace --file target/dist/NOTES.md v$(VERSION)),"
	@echo "push the tag, upload target/dist as its release, and publish: cargo publish --workspace;"
	@echo "twine upload target/dist/quipu_metrics-*; gem push target/dist/*.gem; the image by skopeo"

.PHONY: release-notes
release-notes: ## Write target/dist/NOTES.md from the changelog and the files
	python3 .ci/release.py notes target/dist
	$(MAKE) --no-print-directory package-sums
