# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what it does; the build itself is CMake's.
#
#   JOBS=N         how many at a time (default: one per core)
#   CMAKE_ARGS=... more for CMake, for example CMAKE_ARGS=-DUSE_HTTP=OFF; the build tree keeps it
#                  until it is given another value or removed (make clean)
#   SKIP_DEPS=1    install no packages
#   PREFIX=, DESTDIR=   for make install
#   LAB=...        arguments of tests/lab/run.py, for make lab
#   INTEROP=...    arguments of tests/interop/run.sh, for make interop

MAKEFLAGS += --no-print-directory
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
DESTDIR ?=
CMAKE_ARGS ?=
FUZZ_SECONDS ?= 60
SKIP_DEPS ?=
LAB ?=
INTEROP ?=

deps = $(if $(SKIP_DEPS),@:,@scripts/deps.sh $(1))
# $(call build,<preset>,<build tree>)
# The "+" hands the jobs of make -jN to the make that CMake starts.
define build
@cmake --preset $(1) $(CMAKE_ARGS) >$(if $(V),/dev/stdout,/dev/null)
+@cmake --build $(2)
endef

.PHONY: all build demo test lint format bench fuzz asan tsan debug valgrind coverage install \
	fresh lab interop wheel deb abi ci deps clean help

all: build

build:
	$(call build,release,build)

deps:
	$(call deps,build test)

demo:
	$(call deps,build test)
	@$(MAKE) build
	@scripts/demo.sh

test:
	$(call deps,build test)
	@$(MAKE) build
	@python3 scripts/run_tests.py build

lint:
	$(call deps,build test dev)
	@$(MAKE) build
	@python3 scripts/lint.py

format:
	$(call deps,dev)
	@python3 scripts/lint.py --format

bench:
	$(call deps,build test)
	@$(MAKE) build
	@scripts/bench.sh

fuzz:
	$(call deps,build dev)
	$(call build,fuzz,build/fuzz)
	@scripts/fuzz.sh --seconds $(FUZZ_SECONDS)

debug:
	$(call build,debug,build/debug)

asan tsan:
	$(call deps,build test)
	$(call build,$@,build/$@)
	@python3 scripts/run_tests.py build/$@

valgrind:
	$(call deps,build test dev)
	@$(MAKE) build
	@scripts/valgrind.sh build

coverage:
	$(call deps,build test cover)
	$(call build,coverage,build/coverage)
	@find build/coverage -name '*.gcda' -delete
	@python3 scripts/run_tests.py build/coverage
	@gcovr --root . --filter 'src/' build/coverage

install:
	$(call build,release,build)
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"
	@scripts/after_install.sh build "$(PREFIX)" "$(DESTDIR)"

fresh:
	$(call deps,fresh)
	@tests/fresh.sh

lab:
	$(call deps,build test lab)
	@$(MAKE) build
	@python3 tests/lab/run.py $(LAB)

interop:
	$(call deps,build test)
	@$(MAKE) build
	@tests/interop/run.sh $(INTEROP)

wheel:
	$(call deps,build test)
	@$(MAKE) build
	@scripts/wheel.sh

deb:
	$(call deps,build test)
	@scripts/deb.sh

abi:
	$(call deps,build test)
	@$(MAKE) build
	@scripts/abi.sh --record

ci:
	@.ci/run

clean:
	@rm -rf build

help:
	@echo "make            build libraries (build/lib) and tools (build/bin); installs no packages"
	@echo "make demo       install what is missing, build, move and verify data over loopback"
	@echo "make test       install what is missing, build, run every test"
	@echo "make lint       format, layers, names, sizes"
	@echo "make format     rewrite the C sources in the project's format"
	@echo "make bench      throughput and latency beside the limits of this machine"
	@echo "make asan       tests under the address and undefined-behaviour sanitizers"
	@echo "make tsan       tests under the thread sanitizer"
	@echo "make valgrind   unit tests under valgrind"
	@echo "make fuzz       every fuzz target for FUZZ_SECONDS (60)"
	@echo "make coverage   tests, then which lines they ran"
	@echo "make install    build and install; PREFIX=/usr/local, and DESTDIR= to stage it"
	@echo "make fresh      make demo and make test in a minimal Debian (root, debootstrap)"
	@echo "make lab        tests on real RDMA devices, in virtual machines (docs/lab.md); LAB='name...'"
	@echo "make interop    against Mooncake's own engine, from its wheel (docs/compat.md)"
	@echo "make wheel      the Python packages, into build/wheel"
	@echo "make deb        the Debian packages, into build/deb"
	@echo "make abi        record the ABI of the shared library anew (abi/)"
	@echo "make ci         what the continuous integration runs"
	@echo "make clean      remove build/"
	@echo "Variables: JOBS, CMAKE_ARGS, SKIP_DEPS=1 (install no packages), V=1 (show what CMake says)"
	@echo "CMAKE_ARGS, such as CMAKE_ARGS=-DUSE_HTTP=OFF, holds for later runs too, until the same"
	@echo "switch gets another value (-DUSE_HTTP=ON) or make clean forgets it."
