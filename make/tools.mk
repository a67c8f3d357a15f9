# Tools: the Debian packages that the tests and benchmarks need.
#
# `make tools` installs the programs that are missing, by apt.

# Each entry is command:package. A command can also be a file of its package.
TOOLS := ab:apache2-utils wrk:wrk promtool:prometheus prometheus:prometheus \
	prometheus-pushgateway:prometheus-pushgateway g++:g++ \
	taskset:util-linux unshare:util-linux faketime:faketime fusermount3:fuse3 \
	python3:python3 valgrind:valgrind ruby:ruby rake:rake puma:puma \
	redis-server:redis-server redis-cli:redis-tools tmux:tmux openssl:openssl
# The languages whose libraries `make bench-counting` measures.
COUNTING_TOOLS := javac:default-jdk-headless mvn:maven node:nodejs npm:npm \
	/usr/include/prometheus/counter.h:prometheus-cpp-dev

# Retries for a mirror that fails once, and a timeout for the lock of another apt, as on a machine
# that has just started. By itself, apt waits for the lock only when it installs.
APT_PATIENCE := -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600

.PHONY: tools
tools: ## Install missing programs that the tests and benchmarks run
	@missing=""; for tool in $(TOOLS); do \
		command -v $${tool%%:*} >/dev/null || test -e $${tool%%:*} || missing="$$missing $${tool##*:}"; \
	done; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	ruby -rrbconfig -e 'exit File.exist?(RbConfig::CONFIG["rubyhdrdir"] + "/ruby.h")' 2>/dev/null \
		|| missing="$$missing ruby-dev"; \
	for library in minitest rack; do \
		ruby -e "require '$$library'" 2>/dev/null || missing="$$missing ruby-$$library"; \
	done; \
	ls /usr/lib/llvm-*/lib/libclang.so >/dev/null 2>&1 || missing="$$missing libclang-dev"; \
	if [ -n "$$missing" ]; then \
		sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing$$missing"; \
		end=$$(($$(date +%s) + 600)); \
		until $$sudo apt-get $(APT_PATIENCE) update -qq; do \
			[ $$(date +%s) -lt $$end ] || exit 1; sleep 10; \
		done; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get $(APT_PATIENCE) install -y -qq \
			--no-install-recommends $$missing >/dev/null; \
	fi
