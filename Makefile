# Makefile -- builds Llamero.  `make help` lists the targets, ARCHITECTURE.md the rooms; the tests'
# rules are in tests/rules.mk, those of the GPU backend in src/backends/gpu/*.mk.
# SPDX-License-Identifier: Apache-2.0
B       ?= build
CC      ?= cc
PREFIX  ?= /usr/local
# -g1: stacks have line numbers; OPT='-O3 -g' adds variables for a debugger, but compiles slower.
OPT     ?= -O3 -g1
OPENMP  ?= -fopenmp
VERSION := 0.1.0

# WERROR=1 makes warnings errors, as .ci/run does; other compilers may warn of more.
ERRORS  := $(if $(filter-out 0,$(WERROR)),-Werror)
WARN    := -Wall -Wextra -Wpedantic -Wconversion -Wshadow $(ERRORS) -Wno-pass-failed
MATH    := -ffp-contract=fast -fno-math-errno -fno-trapping-math
HARDEN  = -fPIE -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE \
           -D_FORTIFY_SOURCE=$(FORTIFY) $(if $(filter x86_64,$(MACHINE)),-fcf-protection=full)

# One program runs on every processor of an architecture: the CPU's kernels are compiled for each of
# ISAS, the weakest first, everything else for the baseline.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ifeq ($(MACHINE),x86_64)
ARCH       ?= -march=x86-64-v3
ISAS       ?= avx2 avx512 amx
ISA_avx512 := -march=x86-64-v4 -mprefer-vector-width=512
ISA_amx    := $(ISA_avx512) -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16
else
ISAS       ?= generic
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
           $(MPI_LIBS) $(HUB_LIBS) $(GPU_LIBS) -ldl $(GPU_PATHS:%=-Wl$(comma)-rpath$(comma)%)

KERNELS := $(sort $(wildcard src/backends/cpu/kernels/*.c))
ABSENT  := $(EMULATOR) $(if $(GPU),,$(GPU_SHARED)) $(VENDOR_ABSENT) \
           $(patsubst $(VENDOR)/%,tests/backends/gpu/vendor/test_%,\
               $(filter-out $(addprefix $(VENDOR)/,cublaslt_% hipblaslt_% rocblas_%),\
                   $(VENDOR_ABSENT))) \
           $(if $(filter cuda,$(GPU)),tests/backends/gpu/vendor/stub_cublaslt.c) \
           $(if $(filter hip,$(GPU)),\
               $(patsubst %,tests/backends/gpu/vendor/stub_%.c,hipblaslt rocblas)) \
           $(if $(filter 1,$(HAS_NCCL)),,src/comm/nccl/%) \
           $(if $(MPI_LIBS),,src/comm/mpi/% tests/comm/mpi/%) $(if $(HUB_LIBS),,src/hub/http.c)
SOURCES := $(filter-out $(ABSENT),$(sort $(shell find src -name '*.c')))
TESTS   := $(filter-out $(ABSENT),$(sort $(shell find tests -name '*.c' ! -path 'tests/fuzz/*' \
                                             ! -path '*/preload/*' ! -path 'tests/fault/*' \
                                             ! -path 'tests/memcheck/*' \
                                             ! -path '*/programs/*' \
                                             ! -path tests/ptx/cudart.c)))
# `make sanitize T=-tests/app/` compiles no tests of that folder.
TESTS   := $(filter-out $(UNTESTED),$(TESTS))
BENCH   := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
kernels  = $(foreach isa,$(1),$(KERNELS:%.c=$(B)/%.$(isa).o))
OBJECTS := $(patsubst %.c,$(B)/%.o,$(filter-out $(KERNELS),$(SOURCES))) $(call kernels,$(ISAS))
OBJECTS += $(if $(GPU),$(GPU_KERNELS:%.cu=$(B)/%.o))
EMULATED := $(call kernels,amx_emulated) $(EMULATED_GPU)
ROOMS   := $(filter-out $(B)/src/app/main.o,$(OBJECTS))
FORMAT   = $(shell find src tests bench -name '*.[ch]' -o -name '*.cu' 2>/dev/null)

# Prints one short line per target; V=1 prints the commands, and -s nothing.
Q       := $(if $(V),,@)
SILENT   = $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
say      = @$(if $(V)$(SILENT),:,echo '  $(1) $(@:$(B)/%=%)')

ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell mkdir -p '$(B)' 2>/dev/null && test -w '$(B)' && echo 1),)
$(error cannot write to $(B); to build from a read-only tree, set B to a folder elsewhere)
endif
endif

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all test check demo sanitize race fuzz fuzzers lint format bench docs clean
.PHONY: fault test-mpich test-slurm gpu gpu-budget gpu-build gpu-check gpu-kernels \
        gpu-memcheck gpu-pack gpu-ptx help
.PHONY: install uninstall deb FORCE

all: $(B)/llamero ## build the program, build/llamero

$(B)/llamero: $(OBJECTS) $(B)/list
	$(call say,link)
	$(LINK)

$(B)/tests/run: $(filter-out $(STUBBED),$(ROOMS)) $(EMULATED) $(STUB) $(TESTS:%.c=$(B)/%.o)
$(B)/tests/run: $(B)/list
	$(call say,link)
	$(LINK) -lcmocka

$(B)/tests/programs/gpu_check.o: private OWN := -DLLAMERO_NCCL=$(HAS_NCCL)
$(B)/tests/programs/gpu_check.o: $(B)/gpu-flags
$(B)/tests/gpu_check: $(B)/tests/programs/gpu_check.o $(B)/tests/system/device_check.o $(ROOMS)
	$(call say,link)
	$(LINK)

$(B)/bench/%: $(B)/bench/%.o $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK)

# Tests are barely optimized: they compile faster, and gcc 12 for ARM64 fails to vectorize some.
TEST_OPT := -O1
$(B)/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) $(TEST_OPT) -Itests -c -o $@ $<

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

# `llamero report` writes this page around its data.
$(B)/src/runs/report.inc: src/runs/report.html
	@mkdir -p $(@D)
	$(Q)sed 's/[\\"]/\\&/g; s/.*/"&\\n",/' $< > $@
$(B)/src/runs/report.o: $(B)/src/runs/report.inc
$(B)/src/runs/report.o: private OWN := -I$(B)/src

$(B)/src/backends/cpu/isa.o: private OWN = $(CPU_ISAS)
$(B)/tests/backends/cpu/kernels/%.o: private OWN = $(CPU_ISAS)
CPU_ISAS := "-DCPU_ISAS(X)=$(patsubst %,X(%),$(ISAS))"

# `llamero --version --verbose` prints these.
$(B)/src/doctor/build.o: private OWN := -DBUILD_ISAS='"$(ISAS)"' \
    -DBUILD_FLAGS='"$(strip $(OPT) $(ARCH) $(OPENMP) $(EXTRA))"' \
    -DBUILD_GPU='"$(if $(filter hip,$(GPU)),$(HIP_ARCH),$(CUDA_ARCH)), NCCL $(HAS_NCCL)"'
$(B)/src/doctor/build.o: $(B)/gpu-flags

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
	$(call stamp,$(COMPILE) $(TEST_OPT) $(EMULATED_CXX) $(CHECKED) $(UBSAN) \
	    $(foreach isa,$(ISAS),$(ISA_$(isa))))
$(B)/mpi-flags: FORCE
	$(call stamp,$(MPI_CFLAGS))
$(B)/list: FORCE
	$(call stamp,$(SOURCES) $(TESTS) $(wildcard configs/*.toml) $(LDFLAGS) $(LIBS))

include src/backends/gpu/rules.mk
include tests/rules.mk

check: test lint ## test and lint

gpu: $(B)/llamero $(B)/tests/gpu_check
gpu: ## CUDA=1 or HIP=1: check and time this machine's GPU; BUDGET=570 seconds, PARTS=names
	@BUILD=$(B) tools/gpu $(if $(BUDGET),-t $(BUDGET)) $(B)/gpu $(PARTS)

gpu-pack: ## CUDA=1 or HIP=1: pack what `gpu` runs, for a machine without network: build/pack
	$(if $(GPU),,$(error gpu-pack requires CUDA=1 or HIP=1))
	@$(MAKE) B=$(B)/packing MPI=0 HUB=0 $(B)/packing/llamero $(B)/packing/tests/gpu_check
	@tools/gpu_pack $(B)/packing/llamero $(B)/packing/tests/gpu_check $(B)/pack

demo: $(B)/llamero ## train a small Llama on English text; DATA=file: on your own
	@LLAMERO=$(B)/llamero tools/demo $(DATA)

lint: ## check the rules of CONTRIBUTING.md: first the text, then the objects
	@tools/lint text
	@test -e $(B)/llamero || echo 'lint: first building $(B), which takes minutes' >&2
	@$(MAKE) all $(EMULATED_GPU) $(STUB) $(BENCH:%=$(B)/bench/%.o)
	@tools/lint built $(B)

format: ## format the sources
	clang-format -i $(FORMAT)

bench: all $(BENCH:%=$(B)/bench/%) ## build and run the benchmarks
	$(B)/llamero bench --output $(B)/bench.json
	@for name in $(BENCH); do $(B)/bench/$$name || exit; done

docs: all ## regenerate docs/options.md and docs/commands.md from the tables
	$(B)/llamero config document > docs/options.md
	$(B)/llamero --help=markdown > docs/commands.md

install: all ## install the program, man pages, completions, recipes: PREFIX=/usr/local DESTDIR=
	@tools/install install '$(B)' '$(PREFIX)' '$(DESTDIR)'

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR installed
	@tools/install uninstall '$(B)' '$(PREFIX)' '$(DESTDIR)'

deb: ## build a Debian package, build/deb/llamero_*.deb
	@tools/deb '$(B)'

clean: ## remove what was built
	rm -rf $(B)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(filter %.mk Makefile,$(MAKEFILE_LIST)) | \
	    while read -r target says; do \
	    printf '  %-10s %s\n' "$$target" "$$says"; done
	@echo 'B=$(B) CC=$(CC) ARCH="$(ARCH)" OPT="$(OPT)" EXTRA= T= DATA= RUNS= V= PREFIX= DESTDIR='
	@echo 'MPI=$(HAS_MPI) MPICC=$(MPICC) HUB=$(if $(HUB_LIBS),1,0) WERROR=$(WERROR)'

-include $(OBJECTS:.o=.d) $(EMULATED:.o=.d) $(STUB:.o=.d) $(TESTS:%.c=$(B)/%.d)
-include $(FAULTS:%.c=$(B)/%.d) $(B)/tests/programs/read_file.d $(B)/tests/programs/gpu_check.d
-include $(FUZZ:%=$(B)/tests/fuzz/%.d) $(BENCH:%=$(B)/bench/%.d)
