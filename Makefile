# Llamero: one Makefile.  `make help` lists the targets; CONTRIBUTING.md explains the rooms.
# SPDX-License-Identifier: Apache-2.0
B       ?= build
CC      ?= cc
PREFIX  ?= /usr/local
OPT     ?= -O3 -g
OPENMP  ?= -fopenmp
VERSION := 0.1.0

WARN    := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Wno-pass-failed
MATH    := -ffp-contract=fast -fno-math-errno -fno-trapping-math
HARDEN  := -fPIE -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2

# One program for every processor of an architecture: all of it is compiled for the baseline, the
# CPU's kernels once more for each instruction set of src/backends/cpu/sets.h.
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

# MPI is found, not required: MPI=0 leaves it out, MPICC=mpicc.mpich takes another one.  Only
# src/comm/mpi is compiled with its flags; its headers are not ours to warn about.
MPICC   ?= mpicc
ifneq ($(MPI),0)
MPI_SHOW := $(shell $(MPICC) -show 2>/dev/null || pkg-config --cflags --libs ompi-c 2>/dev/null \
              || pkg-config --cflags --libs mpich 2>/dev/null)
endif
MPI_LIBS := $(filter -L% -l% -Wl%,$(MPI_SHOW))
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SHOW)))
HAS_MPI := $(if $(MPI_LIBS),1,0)

# So is libcurl, which fetches hf:// paths: HUB=0 leaves it out.
hash  := \#
finds  = $(shell echo '$(hash)include <$(1)>' | $(CC) -E -xc $(2) - >/dev/null 2>&1 && echo 1)
ifneq ($(HUB),0)
HUB_LIBS := $(if $(call finds,curl/curl.h),-lcurl)
endif

# GPUs: CUDA=1 (the toolkit that nvcc is of; CUDA=folder: that one) or HIP=1 (hipcc) puts the
# backend into the program.  The tests have it over an emulator, which a C++ compiler is enough for.
comma     := ,
CXX       ?= g++
CUDA_ARCH ?= -gencode arch=compute_90a,code=sm_90a
HIP_ARCH  ?= --offload-arch=gfx90a
HIPCC     ?= hipcc
ifneq ($(filter-out 0,$(CUDA)),)
GPU       := cuda
NVCC      ?= $(if $(wildcard $(CUDA)/bin/nvcc),$(CUDA)/bin/nvcc,nvcc)
CUDA_HOME := $(realpath $(dir $(realpath $(shell command -v $(NVCC))))..)
ifeq ($(CUDA_HOME),)
$(error CUDA=1 wants nvcc on PATH, or CUDA=folder the toolkit's: README.md says where it is had)
endif
# In the toolkit's folder, or each library in one beside it, as Python's packages lay them.
CUDA_DIRS := $(CUDA_HOME) $(CUDA_HOME)/../cudnn $(CUDA_HOME)/../nccl
CUDA_LIB   = $(firstword $(wildcard $(foreach dir,$(CUDA_DIRS:%=%/lib64) $(CUDA_DIRS:%=%/lib),\
                 $(dir)/lib$(1).so $(dir)/lib$(1).so.*)) -l$(1))
GPU_FLAGS := -DGPU_CUDA $(patsubst %,-isystem %,$(wildcard $(CUDA_DIRS:%=%/include)))
GPU_LIBS   = $(foreach name,cudart cublasLt cudnn $(NCCL_LIB),$(call CUDA_LIB,$(name)))
GPU_PATHS  = $(sort $(realpath $(dir $(filter /%,$(GPU_LIBS)))))
UNDRIVEN  := $(if $(shell ldconfig -p 2>/dev/null | grep -F libcuda.so.1),,1)
GPU_CC     = $(NVCC) -std=c++17 -O3 $(CUDA_ARCH) -lineinfo -DGPU_CUDA \
    -Xcompiler -Wall,-fPIE,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
else ifneq ($(filter-out 0,$(HIP)),)
GPU       := hip
GPU_FLAGS := -DGPU_HIP -D__HIP_PLATFORM_AMD__ $(addprefix -isystem ,$(HIP_INCLUDE))
GPU_LIBS   = -lamdhip64 $(NCCL_LIB:%=-l%)
GPU_CC     = $(HIPCC) -x hip -std=c++17 -O3 $(HIP_ARCH) -Wall -fPIE -DGPU_HIP
endif
# NCCL or RCCL between GPUs is found, not required: NCCL=0 leaves it out.
NCCL_HEADER := $(if $(filter hip,$(GPU)),rccl/rccl.h,nccl.h)
NCCL_FOUND   = $(call finds,$(NCCL_HEADER),$(GPU_FLAGS))
HAS_NCCL    := $(if $(and $(GPU),$(filter-out 0,$(or $(NCCL),1)),$(NCCL_FOUND)),1,0)
NCCL_LIB    := $(if $(filter 1,$(HAS_NCCL)),$(if $(filter hip,$(GPU)),rccl,nccl))

DEFINES := -DLLAMERO_MPI=$(HAS_MPI) -D_GNU_SOURCE -DLLAMERO_VERSION=\"$(VERSION)\"
CFLAGS   = -std=c17 $(OPT) $(ARCH) $(MATH) $(WARN) $(HARDEN) $(OPENMP) $(DEFINES) $(EXTRA)
COMPILE  = $(CC) $(CFLAGS) -Isrc $(OWN) -MMD -MP
LDFLAGS := -pie -Wl,-z,relro,-z,now
LINK     = $(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)
LIBS    := -ldnnl -lcjson -lpcre2-8 -lz -lzstd -lbrotlidec -lsnappy -llz4 -lyaml -lm -lpthread \
           $(MPI_LIBS) $(HUB_LIBS) $(GPU_LIBS) $(GPU_PATHS:%=-Wl$(comma)-rpath$(comma)%)

KERNELS := $(sort $(wildcard src/backends/cpu/kernels/*.c))
# The vendors' libraries belong to one runtime each; the emulator is only for tests.
VENDOR      := src/backends/gpu/vendor
GPU_SHARED  := $(wildcard src/backends/gpu/*.c)
GPU_VENDOR  := $(wildcard $(VENDOR)/*.c)
GPU_cuda    := $(VENDOR)/cudnn_% $(VENDOR)/cublaslt_%
GPU_hip     := $(VENDOR)/hipblaslt_%
EMULATOR    := $(wildcard src/backends/gpu/emulator/*.c)
GPU_KERNELS := $(wildcard src/backends/gpu/kernels/*.cu)
VENDOR_ABSENT := $(filter-out $(if $(GPU),$(GPU_$(GPU))),$(GPU_VENDOR))
ABSENT  := $(EMULATOR) $(if $(GPU),,$(GPU_SHARED)) $(VENDOR_ABSENT) \
           $(patsubst $(VENDOR)/%,tests/backends/gpu/vendor/test_%,\
               $(filter-out $(VENDOR)/cublaslt_%,$(VENDOR_ABSENT))) \
           $(if $(filter cuda,$(GPU)),tests/backends/gpu/vendor/stub_cublaslt.c) \
           $(if $(filter 1,$(HAS_NCCL)),,src/comm/nccl/%) \
           $(if $(MPI_LIBS),,src/comm/mpi/% tests/comm/mpi/%) $(if $(HUB_LIBS),,src/hub/http.c)
SOURCES := $(filter-out $(ABSENT),$(sort $(shell find src -name '*.c')))
TESTS   := $(filter-out $(ABSENT),$(sort $(shell find tests -name '*.c' ! -path 'tests/fuzz/*' \
                                             ! -path '*/preload/*' \
                                             ! -path '*/programs/*')))
PRELOAD := $(wildcard tests/system/preload/*.c)
FUZZ    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
BENCH   := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
kernels  = $(foreach isa,$(1),$(KERNELS:%.c=$(B)/%.$(isa).o))
OBJECTS := $(patsubst %.c,$(B)/%.o,$(filter-out $(KERNELS),$(SOURCES))) $(call kernels,$(ISAS))
OBJECTS += $(if $(GPU),$(GPU_KERNELS:%.cu=$(B)/%.o))
emulated = $(GPU_SHARED:%.c=$(B)/%.emu$(1).o) $(GPU_KERNELS:%.cu=$(B)/%.emu$(1).o)
EMULATED_GPU := $(EMULATOR:%.c=$(B)/%.o) $(call emulated,32) $(call emulated,64)
EMULATED := $(call kernels,amx_emulated) $(EMULATED_GPU)
ROOMS   := $(filter-out $(B)/src/app/main.o,$(OBJECTS))
# The tests link comm/nccl with stubs of NCCL and of streams, which need no device.
STUBBED := $(B)/src/comm/nccl/%.o
STUB    := $(patsubst %.c,$(B)/%.stub.o,$(filter-out %/side_stream.c,$(wildcard src/comm/nccl/*.c)))
# Without CUDA, the tests link what calls cuBLASLt against a stub of it.
STUB    += $(if $(filter cuda,$(GPU)),,\
               $(patsubst %.c,$(B)/%.stub.o,$(filter $(VENDOR)/cublaslt_%,$(GPU_VENDOR))))
COUNTER := $(if $(PRELOAD),$(B)/tests/libcount.so)
FORMAT   = $(shell find src tests bench -name '*.[ch]' -o -name '*.cu' 2>/dev/null)

# One short line for each thing made; V=1 shows the commands.
Q       := $(if $(V),,@)
say      = @$(if $(V),:,echo '  $(1) $(@:$(B)/%=%)')

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all test check demo sanitize race fuzz fuzzers lint format bench docs install clean
.PHONY: test-mpich test-slurm gpu gpu-build gpu-check gpu-kernels help FORCE

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

$(B)/tests/libcount.so: $(PRELOAD) $(B)/flags
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) -std=c17 -O2 -g $(WARN) -D_GNU_SOURCE -fPIC -shared -o $@ $(PRELOAD) -ldl

$(B)/bench/%: $(B)/bench/%.o $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK)

# Of an archive a fuzzer takes only what it reads with: what it counts after each run is the less.
$(B)/rooms.a: $(ROOMS) $(B)/list
	$(call say,ar)
	$(Q)rm -f $@ && ar rcs $@ $(ROOMS)

$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(B)/rooms.a
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,--as-needed $(LIBS) -fsanitize=fuzzer

# Tests need no vectors (and gcc 12 for ARM64 trips over some of theirs).
$(B)/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -fno-tree-vectorize -Itests -c -o $@ $<

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<

# What `llamero init` prints is in configs/.
RECIPES := $(wildcard configs/*.toml)
$(B)/src/app/recipes.inc: tools/recipes $(RECIPES) $(B)/list
	@mkdir -p $(@D)
	$(Q)tools/recipes $(RECIPES) > $@
$(B)/src/app/recipes.o: $(B)/src/app/recipes.inc
$(B)/src/app/recipes.o: private OWN := -I$(B)/src

$(B)/src/comm/mpi/%.o: private OWN := $(MPI_CFLAGS)
$(filter $(B)/src/comm/mpi/%,$(OBJECTS)): $(B)/mpi-flags

$(B)/src/comm/nccl/%.o: private OWN := $(GPU_FLAGS)
$(B)/%.stub.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<
$(B)/src/comm/nccl/%.stub.o $(B)/tests/comm/nccl/%.o: private OWN := -Itests/comm/nccl/stub
CUBLASLT_STUB := -DGPU_CUBLASLT -Itests/backends/gpu/vendor/stub
$(B)/$(VENDOR)/cublaslt_%.stub.o: private OWN := $(CUBLASLT_STUB)
CUBLASLT_TESTS := $(B)/tests/backends/gpu/vendor/test_cublaslt_%.o \
    $(B)/tests/backends/gpu/vendor/stub_%.o
$(CUBLASLT_TESTS): private OWN := $(if $(filter cuda,$(GPU)),$(GPU_FLAGS),$(CUBLASLT_STUB))

define compile_kernels
$(B)/src/backends/cpu/kernels/%.$(1).o: src/backends/cpu/kernels/%.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,cc)
	$$(Q)$$(COMPILE) $$(ISA_$(1)) -DCPU_ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ISAS) amx_emulated,$(eval $(call compile_kernels,$(isa))))

# The GPU backend over the emulator, once per warp size.  Its external symbols carry the warp size
# in their names; weak ones are not allowed, because the linker would merge both builds'.
EMULATED_CXX = $(CXX) -x c++ -std=c++17 $(OPT) $(ARCH) $(MATH) -Wall -Wextra -Werror $(EXTRA) \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-weak -fno-strict-aliasing \
    -Wno-unused-function -Wno-maybe-uninitialized -Wno-unknown-pragmas -fPIE $(DEFINES) \
    -Isrc -MMD -MP
define compile_emulated
$(B)/src/backends/gpu/%.emu$(1).o: src/backends/gpu/%.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,cc)
	$$(Q)$$(COMPILE) -DGPU_EMULATED=$(1) -c -o $$@ $$<

$(B)/src/backends/gpu/%.emu$(1).o: src/backends/gpu/%.cu $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,c++)
	$$(Q)$$(EMULATED_CXX) -DGPU_EMULATED=$(1) -c -o $$@ $$<
endef
$(foreach warp,32 64,$(eval $(call compile_emulated,$(warp))))

# The whole program over an emulated GPU, for tests of its commands.
GPU_OBJECTS := $(B)/src/backends/gpu/% $(B)/src/comm/nccl/% $(B)/src/machine/gpu.o
EMULATES := -DLLAMERO_GPU=1 -DLLAMERO_NCCL=0 -DLLAMERO_GPU_NAME=\"cuda\" \
    -DLLAMERO_GPU_PREFIX=gpu_emu32
$(B)/src/machine/gpu.emu32.o: src/machine/gpu.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) $(EMULATES) -c -o $@ $<
$(B)/tests/llamero-gpu: $(filter-out $(GPU_OBJECTS),$(OBJECTS)) $(EMULATOR:%.c=$(B)/%.o)
$(B)/tests/llamero-gpu: $(call emulated,32) $(B)/src/machine/gpu.emu32.o $(B)/list
	$(call say,link)
	$(LINK)

# What is compiled with CUDA or HIP, or depends on which of them: rebuilt when that changes.
$(B)/src/backends/gpu/%.o: private OWN := $(GPU_FLAGS)
$(B)/src/backends/gpu/%.emu32.o $(B)/src/backends/gpu/%.emu64.o: private OWN :=
GPU_DEPENDENT := $(B)/src/machine/gpu.o
$(GPU_DEPENDENT): private OWN += -DLLAMERO_GPU=$(if $(GPU),1,0) -DLLAMERO_NCCL=$(HAS_NCCL) \
    $(if $(GPU),-DLLAMERO_GPU_NAME=\"$(GPU)\" -DLLAMERO_GPU_PREFIX=gpu)
$(GPU_DEPENDENT) $(filter $(B)/src/backends/gpu/% $(B)/src/comm/nccl/%,$(OBJECTS)): $(B)/gpu-flags
$(filter $(CUBLASLT_TESTS),$(TESTS:%.c=$(B)/%.o)): $(B)/gpu-flags
gpu-kernels: $(filter $(B)/src/backends/gpu/kernels/%,$(OBJECTS))
$(B)/src/backends/gpu/kernels/%.o: src/backends/gpu/kernels/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(call say,$(GPU))
	$(Q)$(GPU_CC) -D_GNU_SOURCE -Isrc -MMD -MP -c -o $@ $<

# Files that change only when their content does: other flags compile everything anew, other flags
# of MPI or a GPU what they concern, and a source file that went away links anew.
stamp = @mkdir -p $(@D); echo '$(1)' | cmp -s - $@ || echo '$(1)' > $@
$(B)/flags: FORCE
	$(call stamp,$(COMPILE) $(EMULATED_CXX) $(foreach isa,$(ISAS),$(ISA_$(isa))))
$(B)/mpi-flags: FORCE
	$(call stamp,$(MPI_CFLAGS))
$(B)/gpu-flags: FORCE
	$(call stamp,$(GPU) $(GPU_FLAGS) $(HAS_NCCL) $(if $(GPU),$(GPU_CC)))
$(B)/list: FORCE
	$(call stamp,$(SOURCES) $(TESTS) $(wildcard configs/*.toml) $(LDFLAGS) $(LIBS))

# A stub of the CUDA driver, so that cuDNN can build plans for an H200 on machines without a GPU.
DRIVER  := $(B)/tests/driver/libcuda.so.1
DRIVING  = LD_LIBRARY_PATH=$(dir $(DRIVER))$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}
$(DRIVER): tests/backends/gpu/vendor/preload/libcuda.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) -std=c17 -O2 $(WARN) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

gpu-build: ## compile for NVIDIA and AMD GPUs, with the compilers found; build cuDNN plans
	@tools/gpu_build $(B)

gpu-check: $(B)/tests/run $(DRIVER) ## CUDA=1: check cuDNN plans for every recipe, without a GPU
	@$(DRIVING) $(B)/tests/run cudnn

test: $(B)/llamero $(B)/tests/run $(B)/tests/llamero-gpu $(COUNTER) $(if $(UNDRIVEN),$(DRIVER))
test: ## run the tests; T=word: those of that name
	@$(if $(UNDRIVEN),$(DRIVING)) OMP_WAIT_POLICY=passive LLAMERO=$(B)/llamero \
	LLAMERO_GPU=$(B)/tests/llamero-gpu LLAMERO_PRELOAD=$(COUNTER) \
	LLAMERO_MPIRUN=$(MPICC:mpicc%=mpirun%) $(B)/tests/run $(T)

# Against another library, and nothing else is another: only comm/mpi is compiled anew, and only
# what a launcher starts is tested.
test-mpich: $(B)/llamero $(B)/tests/run ## run the tests of launched ranks with MPICH; T=word
	@mkdir -p $(B)/mpich && cp -pru $(B)/flags $(B)/gpu-flags $(B)/src $(B)/tests $(B)/mpich
	@for t in $(or $(T),test_launched test_mpi test_heartbeat); do \
	    $(MAKE) test T=$$t B=$(B)/mpich MPICC=mpicc.mpich || exit 1; done

test-slurm: $(B)/llamero ## train under a Slurm cluster of namespaces (root): minutes
	@LLAMERO=$(B)/llamero tests/slurm/run

check: test lint ## test and lint

gpu: $(B)/llamero $(B)/tests/gpu_check ## CUDA=1 or HIP=1: check and time this machine's GPU
	@tools/gpu $(B)

demo: $(B)/llamero ## train a small Llama on English text; DATA=file: on your own
	@LLAMERO=$(B)/llamero tools/demo $(DATA)

# The tests once more, built to find reads and writes out of bounds, leaks and undefined behaviour.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
sanitize: ## run the tests under ASan and UBSan; T=word
	@ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=tools/lsan.supp:print_suppressions=0 \
	UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) test T='$(T)' B=$(B)/sanitize OPT='-O1 -g' \
	    HARDEN= LDFLAGS= PRELOAD= EXTRA='$(SANITIZE) -Wno-maybe-uninitialized'

# Ranks that are threads there, one each: libgomp, which TSan does not see into, starts none.
RACE := test_ranks_resume test_ranks_traffic test_fsdp test_pipeline test_ring test_comm \
    test_progress
race: ## run the tests of ranks under TSan
	@for t in $(or $(T),$(RACE)); do \
	    $(MAKE) test T=$$t B=$(B)/race OPT='-O1 -g' HARDEN= LDFLAGS= PRELOAD= \
	    EXTRA='-fsanitize=thread' || exit 1; done

FUZZ_CC ?= clang
FUZZ_FINDS := -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow
fuzz: ## build the fuzzers, build/fuzz/*; RUNS=n: run each that often, ONE=name: that one
	@$(MAKE) fuzzers B=$(B)/fuzzing CC=$(FUZZ_CC) OPT='-O2 -g' HARDEN= LDFLAGS= \
	    EXTRA='$(FUZZ_FINDS) -fno-sanitize-recover=all -w'
	@mkdir -p $(B)/fuzz && for name in $(FUZZ); do ln -sf ../fuzzing/fuzz/$$name $(B)/fuzz/; done
	@$(if $(RUNS),tools/fuzz $(B) $(RUNS) $(or $(ONE),$(FUZZ)))
fuzzers: $(FUZZ:%=$(B)/fuzz/%)

lint: ## check the rules of CONTRIBUTING.md: those about text first, then those about objects
	@tools/lint text
	@$(MAKE) all $(EMULATED_GPU)
	@tools/lint built $(B)

format: ## format the sources
	clang-format -i $(FORMAT)

bench: all $(BENCH:%=$(B)/bench/%) ## build and run the benchmarks
	$(B)/llamero bench --output $(B)/bench.json
	@for name in $(BENCH); do $(B)/bench/$$name || exit; done

docs: all ## write docs/options.md anew from the options' tables
	$(B)/llamero config document > docs/options.md

install: all ## PREFIX=/usr/local DESTDIR=
	install -D -m 755 $(B)/llamero $(DESTDIR)$(PREFIX)/bin/llamero
	install -D -m 644 docs/options.md $(DESTDIR)$(PREFIX)/share/doc/llamero/options.md

clean: ## remove what was built
	rm -rf $(B)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while read -r target says; do \
	    printf '  %-10s %s\n' "$$target" "$$says"; done
	@echo 'B=$(B) CC=$(CC) ARCH="$(ARCH)" OPT="$(OPT)" EXTRA= T= DATA= RUNS= V= PREFIX= DESTDIR='
	@echo 'MPI=$(HAS_MPI) MPICC=$(MPICC) HUB=$(if $(HUB_LIBS),1,0)'

-include $(OBJECTS:.o=.d) $(EMULATED:.o=.d) $(STUB:.o=.d) $(TESTS:%.c=$(B)/%.d)
-include $(FUZZ:%=$(B)/tests/fuzz/%.d) $(BENCH:%=$(B)/bench/%.d)
