# Makefile -- builds and tests Llamero.  `make help` lists the targets, ARCHITECTURE.md the rooms;
# src/backends/gpu/*.mk has the rules of the GPU backend.
# SPDX-License-Identifier: Apache-2.0
B       ?= build
CC      ?= cc
PREFIX  ?= /usr/local
OPT     ?= -O3 -g
OPENMP  ?= -fopenmp
VERSION := 0.1.0

WARN    := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Wno-pass-failed
MATH    := -ffp-contract=fast -fno-math-errno -fno-trapping-math
HARDEN  = -fPIE -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE \
           -D_FORTIFY_SOURCE=$(FORTIFY) $(if $(filter x86_64,$(MACHINE)),-fcf-protection=full)

# One program runs on every processor of an architecture: the CPU's kernels are compiled for each
# ISA of src/backends/cpu/isa.h, everything else for the baseline.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ifeq ($(MACHINE),x86_64)
ARCH       ?= -march=x86-64-v3
ISAS       := avx2 avx512 amx
ISA_avx512 := -march=x86-64-v4 -mprefer-vector-width=512
ISA_amx    := $(ISA_avx512) -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16
else
ISAS       := generic
endif
ISA_amx_emulated := -DTILES_EMULATED

# MPI is optional: MPI=0 leaves it out, MPICC=mpicc.mpich selects another library.  Only
# src/comm/mpi is compiled with its flags; -isystem silences warnings about its headers.
MPICC   ?= mpicc
ifneq ($(MPI),0)
MPI_SHOW := $(shell $(MPICC) -show 2>/dev/null || pkg-config --cflags --libs ompi-c 2>/dev/null \
              || pkg-config --cflags --libs mpich 2>/dev/null)
endif
MPI_LIBS := $(filter -L% -l% -Wl%,$(MPI_SHOW))
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SHOW)))
HAS_MPI := $(if $(MPI_LIBS),1,0)

hash  := \#
finds  = $(shell echo '$(hash)include <$(1)>' | $(CC) -E -xc $(2) - >/dev/null 2>&1 && echo 1)
# Where 3 is not supported, glibc warns.
FORTIFY := $(if $(call finds,stdio.h,-O1 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3),3,2)

# libcurl, for hf:// paths, is optional: HUB=0 leaves it out.
ifneq ($(HUB),0)
HUB_LIBS := $(if $(call finds,curl/curl.h),-lcurl)
endif

include src/backends/gpu/toolkit.mk

DEFINES := -DLLAMERO_MPI=$(HAS_MPI) -D_GNU_SOURCE -DLLAMERO_VERSION=\"$(VERSION)\"
CFLAGS   = -std=c17 $(OPT) $(ARCH) $(MATH) $(WARN) $(HARDEN) $(OPENMP) $(DEFINES) $(EXTRA)
COMPILE  = $(CC) $(CFLAGS) -Isrc $(OWN) -MMD -MP
LDFLAGS := -pie -Wl,-z,relro,-z,now,--build-id=sha1
LINK     = $(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)
LIBS    := -ldnnl -lcjson -lpcre2-8 -lz -lzstd -lbrotlidec -lsnappy -llz4 -lyaml -lm -lpthread \
           $(MPI_LIBS) $(HUB_LIBS) $(GPU_LIBS) $(GPU_PATHS:%=-Wl$(comma)-rpath$(comma)%)

KERNELS := $(sort $(wildcard src/backends/cpu/kernels/*.c))
ABSENT  := $(EMULATOR) $(if $(GPU),,$(GPU_SHARED)) $(VENDOR_ABSENT) \
           $(patsubst $(VENDOR)/%,tests/backends/gpu/vendor/test_%,\
               $(filter-out $(VENDOR)/cublaslt_%,$(VENDOR_ABSENT))) \
           $(if $(filter cuda,$(GPU)),tests/backends/gpu/vendor/stub_cublaslt.c) \
           $(if $(filter 1,$(HAS_NCCL)),,src/comm/nccl/%) \
           $(if $(MPI_LIBS),,src/comm/mpi/% tests/comm/mpi/%) $(if $(HUB_LIBS),,src/hub/http.c)
SOURCES := $(filter-out $(ABSENT),$(sort $(shell find src -name '*.c')))
TESTS   := $(filter-out $(ABSENT),$(sort $(shell find tests -name '*.c' ! -path 'tests/fuzz/*' \
                                             ! -path '*/preload/*' ! -path 'tests/fault/*' \
                                             ! -path '*/programs/*')))
PRELOAD := $(B)/tests/libcount.so $(B)/tests/libfault.so
FAULTS  := $(sort $(wildcard tests/fault/*.c)) tests/main.c tests/system/runs.c \
           tests/comm/launched.c tests/hub/server.c
RACE    := base/test_activity comm/test_agreement comm/test_comm comm/mpi/test_progress \
    data/test_loader_exchange parallel/test_fsdp parallel/test_pipeline parallel/test_ring \
    system/test_ranks_resume system/test_ranks_traffic
RACE    := $(filter $(RACE:%=tests/%.c),$(TESTS)) \
    $(filter-out tests/ops/% tests/oracle/% tests/backends/cpu/%,\
        $(foreach t,$(TESTS),$(if $(filter test_%,$(notdir $(t))),,$(t)))) # tests' helpers
FUZZ    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
BENCH   := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
kernels  = $(foreach isa,$(1),$(KERNELS:%.c=$(B)/%.$(isa).o))
OBJECTS := $(patsubst %.c,$(B)/%.o,$(filter-out $(KERNELS),$(SOURCES))) $(call kernels,$(ISAS))
OBJECTS += $(if $(GPU),$(GPU_KERNELS:%.cu=$(B)/%.o))
EMULATED := $(call kernels,amx_emulated) $(EMULATED_GPU)
ROOMS   := $(filter-out $(B)/src/app/main.o,$(OBJECTS))
FORMAT   = $(shell find src tests bench -name '*.[ch]' -o -name '*.cu' 2>/dev/null)

# Prints one short line per target; V=1 prints the commands.
Q       := $(if $(V),,@)
say      = @$(if $(V),:,echo '  $(1) $(@:$(B)/%=%)')

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all test check demo sanitize race fuzz fuzzers lint format bench docs install clean
.PHONY: fault test-mpich test-slurm gpu gpu-build gpu-check gpu-kernels help FORCE

all: $(B)/llamero ## build the program, build/llamero

$(B)/llamero: $(OBJECTS) $(B)/list
	$(call say,link)
	$(LINK)

$(B)/tests/run: $(filter-out $(STUBBED),$(ROOMS)) $(EMULATED) $(STUB) $(TESTS:%.c=$(B)/%.o)
$(B)/tests/run: $(B)/list
	$(call say,link)
	$(LINK) -lcmocka

$(B)/tests/gpu_check: $(B)/tests/programs/gpu_check.o $(B)/tests/system/device_check.o $(ROOMS)
	$(call say,link)
	$(LINK)

$(B)/tests/fault/run: $(FAULTS:%.c=$(B)/%.o) $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK) -lcmocka

$(B)/tests/race: $(filter-out $(STUBBED),$(ROOMS)) $(EMULATOR:%.c=$(B)/%.o) $(call emulated,32) \
    $(STUB) $(B)/list
$(B)/tests/race: $(RACE:%.c=$(B)/%.o)
	$(call say,link)
	$(LINK) -lcmocka

$(B)/tests/libfault.so: tests/fault/preload/fault.c
$(B)/tests/libjournal.so: tests/fault/preload/journal.c
$(B)/tests/libcount.so: tests/system/preload/count_allocations.c
$(B)/tests/lib%.so: $(B)/flags $(B)/mpi-flags
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) -std=c17 -O2 -g $(WARN) -D_GNU_SOURCE $(if $(MPI_LIBS),-DFAULT_MPI $(MPI_CFLAGS)) \
	    -fPIC -shared -o $@ $(filter %.c,$^) -ldl

$(B)/bench/%: $(B)/bench/%.o $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK)

# An archive, so that a fuzzer links only what it uses: fewer coverage counters to reset per run.
$(B)/rooms.a: $(ROOMS) $(B)/list
	$(call say,ar)
	$(Q)rm -f $@ && ar rcs $@ $(ROOMS)

$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(B)/rooms.a
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,--as-needed $(LIBS) -fsanitize=fuzzer

# Tests are not vectorized: they compile faster, and gcc 12 for ARM64 fails on some of them.
$(B)/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -fno-tree-vectorize -Itests -c -o $@ $<

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<

# `llamero init` prints the files of configs/.
RECIPES := $(wildcard configs/*.toml)
$(B)/src/app/recipes.inc: tools/recipes $(RECIPES) $(B)/list
	@mkdir -p $(@D)
	$(Q)tools/recipes $(RECIPES) > $@
$(B)/src/app/recipes.o: $(B)/src/app/recipes.inc
$(B)/src/app/recipes.o: private OWN := -I$(B)/src

$(B)/src/comm/mpi/%.o: private OWN := $(MPI_CFLAGS)
$(filter $(B)/src/comm/mpi/%,$(OBJECTS)): $(B)/mpi-flags

define compile_kernels
$(B)/src/backends/cpu/kernels/%.$(1).o: src/backends/cpu/kernels/%.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,cc)
	$$(Q)$$(COMPILE) $$(ISA_$(1)) -DCPU_ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ISAS) amx_emulated,$(eval $(call compile_kernels,$(isa))))

# Stamp files change only when their content does: new flags recompile everything, new flags of MPI
# or of a GPU toolkit what depends on them, and a removed source file relinks.
stamp = @mkdir -p $(@D); echo '$(1)' | cmp -s - $@ || echo '$(1)' > $@
$(B)/flags: FORCE
	$(call stamp,$(COMPILE) $(EMULATED_CXX) $(foreach isa,$(ISAS),$(ISA_$(isa))))
$(B)/mpi-flags: FORCE
	$(call stamp,$(MPI_CFLAGS))
$(B)/list: FORCE
	$(call stamp,$(SOURCES) $(TESTS) $(wildcard configs/*.toml) $(LDFLAGS) $(LIBS))

include src/backends/gpu/rules.mk

test: $(B)/llamero $(B)/tests/run $(B)/tests/llamero-gpu $(PRELOAD) $(if $(UNDRIVEN),$(DRIVER))
test: ## run the tests; T=word: only those whose name or file contains it
	@$(if $(UNDRIVEN),$(DRIVING)) OMP_WAIT_POLICY=passive LLAMERO=$(B)/llamero \
	LLAMERO_GPU=$(B)/tests/llamero-gpu LLAMERO_COUNTER=$(filter %/libcount.so,$(PRELOAD)) \
	LLAMERO_PRELOAD=$(filter %/libfault.so,$(PRELOAD)) \
	LLAMERO_MPIRUN=$(MPICC:mpicc%=mpirun%) $(B)/tests/run $(T)

# Recompiles only comm/mpi against MPICH, and runs only the tests that use a launcher.
test-mpich: $(B)/llamero $(B)/tests/run ## run the tests of launched ranks with MPICH; T=word
	@mkdir -p $(B)/mpich && cp -pru $(B)/flags $(B)/gpu-flags $(B)/src $(B)/tests $(B)/mpich
	@for t in $(or $(T),test_launched test_mpi test_heartbeat); do \
	    $(MAKE) test T=$$t B=$(B)/mpich MPICC=mpicc.mpich || exit 1; done

test-slurm: $(B)/llamero ## train on a Slurm cluster of network namespaces (root), in minutes
	@LLAMERO=$(B)/llamero tests/slurm/run

# Without SHORT every n-th call fails, in hours; CONTRIBUTING.md tells how to reproduce a row.
fault: $(B)/tests/libjournal.so
fault: $(B)/llamero $(B)/tests/fault/run $(B)/tests/libfault.so ## inject faults; T=word; SHORT=1
	@rm -f $(B)/fault.txt; code=0; OMP_WAIT_POLICY=passive LLAMERO=$(B)/llamero \
	LLAMERO_PRELOAD=$(abspath $(B)/tests/libfault.so) LLAMERO_FAULT_TABLE=$(B)/fault.txt \
	LLAMERO_MPIRUN=$(MPICC:mpicc%=mpirun%) $(if $(SHORT),LLAMERO_FAULT_POINTS=$(FAULT_POINTS)) \
	$(B)/tests/fault/run $(T) > $(B)/fault.log 2>&1 || code=$$?; \
	printf '%-17s %-46s %6s %8s %5s  %s\n' scene fault tried survived lost message; \
	sort $(B)/fault.txt; \
	grep -B 1 -A 5 -e '^lost' -e ' --- ' -e '^\[  FAILED' $(B)/fault.log | cut -c 1-400; \
	tail -n 1 $(B)/fault.log; exit $$code
FAULT_POINTS := 16 # of each row, times its share

check: test lint ## test and lint

gpu: $(B)/llamero $(B)/tests/gpu_check ## CUDA=1 or HIP=1: check and time this machine's GPU
	@tools/gpu $(B)

demo: $(B)/llamero ## train a small Llama on English text; DATA=file: on your own
	@LLAMERO=$(B)/llamero tools/demo $(DATA)

# The tests with sanitizers: out-of-bounds accesses, leaks and undefined behavior.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
sanitize: ## run the tests under ASan and UBSan; T=word
	@ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=tools/lsan.supp:print_suppressions=0 \
	UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) test T='$(T)' B=$(B)/sanitize OPT='-O1 -g' \
	    HARDEN= LDFLAGS= PRELOAD= \
	    EXTRA='$(SANITIZE) -Wno-maybe-uninitialized -DLLAMERO_CHECK_COLLECTIVES'

# Ranks are threads in these tests and use one thread each: TSan does not understand libgomp.
race: ## run the tests of ranks under TSan; T=word
	@$(MAKE) $(B)/race/tests/race B=$(B)/race OPT='-O1 -g' HARDEN= LDFLAGS= \
	    EXTRA='-fsanitize=thread -DLLAMERO_CHECK_COLLECTIVES'
	@OMP_WAIT_POLICY=passive $(B)/race/tests/race $(T)

FUZZ_CC ?= clang
FUZZ_FINDS := -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow
fuzz: ## build the fuzzers, build/fuzz/*; RUNS=n: run each n times; ONE=name: only that one
	@$(MAKE) fuzzers B=$(B)/fuzzing CC=$(FUZZ_CC) OPT='-O2 -g' HARDEN= LDFLAGS= \
	    EXTRA='$(FUZZ_FINDS) -fno-sanitize-recover=all -w'
	@mkdir -p $(B)/fuzz && for name in $(FUZZ); do ln -sf ../fuzzing/fuzz/$$name $(B)/fuzz/; done
	@$(if $(RUNS),tools/fuzz $(B) $(RUNS) $(or $(ONE),$(FUZZ)))
fuzzers: $(FUZZ:%=$(B)/fuzz/%)

lint: ## check the rules of CONTRIBUTING.md: first the text, then the objects
	@tools/lint text
	@$(MAKE) all $(EMULATED_GPU)
	@tools/lint built $(B)

format: ## format the sources
	clang-format -i $(FORMAT)

bench: all $(BENCH:%=$(B)/bench/%) ## build and run the benchmarks
	$(B)/llamero bench --output $(B)/bench.json
	@for name in $(BENCH); do $(B)/bench/$$name || exit; done

docs: all ## regenerate docs/options.md from the tables of options
	$(B)/llamero config document > docs/options.md

install: all ## PREFIX=/usr/local DESTDIR=
	install -D -m 755 $(B)/llamero $(DESTDIR)$(PREFIX)/bin/llamero
	install -D -m 644 docs/options.md $(DESTDIR)$(PREFIX)/share/doc/llamero/options.md

clean: ## remove what was built
	rm -rf $(B)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(filter %.mk Makefile,$(MAKEFILE_LIST)) | \
	    while read -r target says; do \
	    printf '  %-10s %s\n' "$$target" "$$says"; done
	@echo 'B=$(B) CC=$(CC) ARCH="$(ARCH)" OPT="$(OPT)" EXTRA= T= DATA= RUNS= V= PREFIX= DESTDIR='
	@echo 'MPI=$(HAS_MPI) MPICC=$(MPICC) HUB=$(if $(HUB_LIBS),1,0)'

-include $(OBJECTS:.o=.d) $(EMULATED:.o=.d) $(STUB:.o=.d) $(TESTS:%.c=$(B)/%.d)
-include $(FAULTS:%.c=$(B)/%.d)
-include $(FUZZ:%=$(B)/tests/fuzz/%.d) $(BENCH:%=$(B)/bench/%.d)
