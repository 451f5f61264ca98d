# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what it does; the build itself is CMake's.
#
#   T='...'        for make test, asan, tsan, coverage: these tests only; names (unit/test_conf) or regular
#                  expressions that they contain; for make models, parts of names
#   WERROR=1       warnings are errors; the build tree keeps it, as what CMAKE_ARGS says, until WERROR=0
#   JOBS=N         how many at a time (default: one per core)
#   CMAKE_ARGS=... more for CMake, for example CMAKE_ARGS=-DTE_USE_HTTP=OFF; the build tree keeps it
#                  until it is given another value or removed (make clean)
#   SKIP_DEPS=1    install no packages
#   PREFIX=, DESTDIR=   for make install
#   LAB=...        arguments of tests/lab/run.py, for make lab
#   SYSTEMS=...    arguments of tests/systems/run.py, for make systems
#   INTEROP=...    arguments of tests/interop/run.sh, for make interop
#   PROOFS=...     arguments of tests/proofs/run.py, for make proofs
#   SOAK=...       arguments of scripts/soak.sh, for make soak
#   HOURS=N        for make soak: the campaigns take turns for so long, and a table tells what has run
#   SEEDS=N        how many runs of the simulation, for make sim; SIM=... further arguments; HASHES=N:
#                  of so many seeds three runs are compared (100); ATOMICS=1: threads change before each
#                  atomic operation of the library, too
#   WHEEL=...      arguments of scripts/wheel.sh, for make wheel

MAKEFLAGS += --no-print-directory
# Two targets would configure one build tree at once; what they start does use the jobs of make -jN.
.NOTPARALLEL:
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
DESTDIR ?=
CMAKE_ARGS ?=
FUZZ_SECONDS ?= 60
SKIP_DEPS ?=
WERROR ?=
T ?=
LAB ?=
SYSTEMS ?=
SUITE ?=
INTEROP ?=
PROOFS ?=
SOAK ?=
SEEDS ?= 1000
HASHES ?= 100
ATOMICS ?=
sim_preset = $(if $(ATOMICS),sim,release)
sim_tree = $(if $(ATOMICS),build/sim,build)
SIM ?=
WHEEL ?=

deps = $(if $(SKIP_DEPS),@:,@scripts/deps.sh $(1))
# $(call build,<preset>,<build tree>,<targets>)
# The "+" hands the jobs of make -jN to the make that CMake starts; without -j, JOBS counts.
define build
@command -v cmake >/dev/null || { echo "make: there is no cmake: scripts/deps.sh build installs what is missing" >&2; exit 1; }
@cmake -P cmake/version.cmake
@cmake --preset $(1) $(if $(WERROR),-DTE_WERROR=$(WERROR)) $(CMAKE_ARGS) >$(if $(V),/dev/stdout,/dev/null)
+@targets="$(3)" && \
	cmake --build $(2) $(if $(filter --jobserver% -j%,$(MAKEFLAGS)),,--parallel $(JOBS)) --target $$targets
endef
# $(call run_tests,<build tree>): those of $(T); $(call tests,<build tree>): what has to be built for them.
run_tests = @python3 scripts/run_tests.py $(1) $(foreach t,$(T),-T '$(t)')
tests = $$(python3 scripts/run_tests.py $(1) --targets $(foreach t,$(T),-T '$(t)'))

.PHONY: all build tests demo test lint format docs bench fuzz sim soak asan tsan debug valgrind coverage install \
	uninstall fresh systems lab interop models proofs mutants wheel deb kit abi site ci deps clean help

all: build

build:
	$(call build,release,build,all)

tests:
	$(call build,release,build,te_tests)

deps:
	$(call deps,build test)

demo:
	$(call deps,build)
	@$(MAKE) build
	@scripts/demo.sh

test:
	$(call deps,build test)
	$(call build,release,build,$(call tests,build))
	$(call run_tests,build)

lint:
	$(call deps,build dev)
	@$(MAKE) build
	@python3 scripts/lint.py

format:
	$(call deps,dev)
	@python3 scripts/lint.py --format

docs:
	@$(MAKE) build
	@build/bin/te_info --config --markdown >docs/config.md
	@build/bin/te_info --metrics --markdown >docs/metrics.md
	@build/bin/te_info --config --man >man/man5/transfer_engine.5
	@python3 scripts/makers.py
	@python3 scripts/pictures.py
	@python3 scripts/topology.py

site:
	$(call deps,site)
	@python3 scripts/make_site.py

bench:
	$(call deps,build test)
	@$(MAKE) tests
	@scripts/bench.sh

fuzz:
	$(call deps,build dev)
	$(call build,fuzz,build/fuzz,all)
	@scripts/fuzz.sh --seconds $(FUZZ_SECONDS)

sim:
	$(call deps,build test)
	$(call build,$(sim_preset),$(sim_tree),sim)
	@echo "sim: of commit $$(git rev-parse --short HEAD 2>/dev/null || echo unknown)$$(git diff --quiet HEAD 2>/dev/null || echo ', and changes')"
	@$(sim_tree)/tests/sim/sim --seeds=$(SEEDS) --jobs=$(JOBS) $(SIM)
	@$(if $(SIM),:,$(sim_tree)/tests/sim/sim --seeds=$(HASHES) --jobs=$(JOBS) --check-hash)

soak:
	$(call deps,build test)
	@$(MAKE) tests
	@scripts/soak.sh $(if $(HOURS),--hours $(HOURS)) $(SOAK)

debug:
	$(call build,debug,build/debug,all)

asan tsan:
	$(call deps,build test)
	$(call build,$@,build/$@,$(call tests,build/$@))
	$(call run_tests,build/$@)

valgrind:
	$(call deps,build test dev)
	@$(MAKE) tests
	@scripts/valgrind.sh build

coverage:
	$(call deps,build test cover)
	$(call build,coverage,build/coverage,$(call tests,build/coverage))
	@find build/coverage -name '*.gcda' -delete
	$(call run_tests,build/coverage)
	@gcovr --root . --filter 'src/' build/coverage

install:
	$(call build,release,build,all)
	@scripts/install.sh build "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@scripts/uninstall.sh build "$(PREFIX)" "$(DESTDIR)"

fresh:
	$(call deps,systems)
	@tests/fresh.sh $(if $(SUITE),--suite $(SUITE))

lab:
	$(call deps,build test lab)
	@$(MAKE) tests
	@python3 tests/lab/run.py $(LAB)

systems:
	$(call deps,build test systems)
	@python3 tests/systems/run.py $(SYSTEMS)

interop:
	$(call deps,build test)
	@$(MAKE) tests
	@tests/interop/run.sh $(INTEROP)

models:
	$(call deps,test)
	@tests/models/run.sh $(T)

proofs:
	$(call deps,systems)
	@python3 tests/proofs/run.py $(PROOFS)

mutants:
	$(call deps,build test)
	@$(MAKE) tests
	@python3 tests/mutants/run.py $(MUTANTS)

wheel:
	$(call deps,build test systems)
	@scripts/wheel.sh $(WHEEL)

deb:
	$(call deps,build test)
	@scripts/deb.sh

kit:
	$(call deps,build test)
	$(call build,release,build,all te_tests)
	@scripts/kit.sh

abi:
	$(call deps,build test)
	@$(MAKE) build
	@scripts/abi.sh --record

ci:
	@.ci/run

# What make uninstall goes by stays (scripts/install.sh).
clean:
	@[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name installed -exec rm -rf {} +
	@[ ! -d build ] || find build -depth -type d -empty -delete

help:
	@echo "make            build libraries (build/lib) and tools (build/bin); installs no packages"
	@echo "make demo       install what is missing, build, move and verify data over loopback"
	@echo "make test       install what is missing, build, run every test; T='unit/test_conf tcp': these"
	@echo "make lint       format, layers, names, sizes"
	@echo "make format     rewrite the C sources in the project's format"
	@echo "make docs       docs/config.md, docs/metrics.md, transfer_engine(5), docs/pictures and rows of docs/gpu.md, from tables"
	@echo "make site       all documents as one web site, build/site/html: search, every link looked at"
	@echo "make bench      throughput and latency beside the limits of this machine"
	@echo "make asan       tests under the address and undefined-behaviour sanitizers"
	@echo "make tsan       tests under the thread sanitizer"
	@echo "make valgrind   unit tests under valgrind"
	@echo "make fuzz       every fuzz target for FUZZ_SECONDS (60)"
	@echo "make sim        several engines on a simulated network, in virtual time; SEEDS=N runs, SIM='--seed=S --trace'"
	@echo "make soak       the long campaigns, every case of what tests sample (hours); SOAK='name...', HOURS=N: by turns"
	@echo "make coverage   tests, then which lines they ran"
	@echo "make install    build and install; PREFIX=/usr/local, and DESTDIR= to stage it"
	@echo "make uninstall  remove what make install of this tree put there (the same PREFIX and DESTDIR)"
	@echo "make fresh      make demo and make test in a minimal Debian (root); SUITE=trixie, noble: there"
	@echo "make lab        tests on real RDMA devices, in virtual machines (docs/lab.md); LAB='name...'"
	@echo "make systems    build and unit tests on other systems (docs/platforms.md); SYSTEMS='name...'"
	@echo "make interop    against Mooncake's own engine, from its wheel (docs/compat.md)"
	@echo "make models     the lock-free structures in every interleaving (loom, from crates.io); T='name...'"
	@echo "make proofs     parsers and arithmetic by CBMC, for every input up to a bound; PROOFS='name...', PROOFS=--faults"
	@echo "make mutants    faults that a program has put into the library, and who finds them (a day); MUTANTS='--help'"
	@echo "make wheel      the Python packages, into build/wheel; WHEEL='--arch x86_64': for that one"
	@echo "make deb        the Debian packages, into build/deb"
	@echo "make kit        an archive that tries accelerators and NICs of a host without building (docs/gpu.md)"
	@echo "make abi        record the ABI of the shared library anew (abi/)"
	@echo "make ci         what the continuous integration runs"
	@echo "make debug      build/debug: not optimised, assertions on"
	@echo "make tests      build the tests, and run none"
	@echo "make deps       install the packages that make and make test need"
	@echo "make clean      remove build/, but for the lists that make uninstall goes by"
	@echo "Variables: JOBS, CMAKE_ARGS, WERROR=1 (warnings are errors), SKIP_DEPS=1 (install no packages),"
	@echo "V=1 (show what CMake says)."
	@echo "CMAKE_ARGS, such as CMAKE_ARGS=-DTE_USE_HTTP=OFF, holds for later runs too, until the same"
	@echo "switch gets another value (-DTE_USE_HTTP=ON) or make clean forgets it."
