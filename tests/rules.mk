# rules.mk -- builds and runs the tests: as they are, with injected faults, under sanitizers, with
# other MPI libraries, and the fuzzers.
# SPDX-License-Identifier: Apache-2.0
PRELOAD := $(B)/tests/libcount.so $(B)/tests/libfault.so
FAULTS  := $(sort $(wildcard tests/fault/*.c)) tests/main.c tests/system/runs.c \
           tests/comm/launched.c tests/hub/server.c
RACED   := base/test_activity comm/test_agreement comm/test_comm comm/test_progress comm/shm/test_endpoint \
    data/test_loader_exchange parallel/test_fsdp parallel/test_pipeline parallel/test_ring \
    system/test_ranks_resume system/test_ranks_traffic
# With what tests share, except that of rooms which have no ranks.
SHARED  := $(foreach t,$(TESTS),$(if $(filter test_%,$(notdir $(t))),,$(t)))
RACE    := $(filter $(RACED:%=tests/%.c),$(TESTS)) \
    $(filter-out tests/ops/% tests/oracle/% tests/backends/cpu/% %hipblaslt.c %rocblas.c,\
        $(SHARED))
FUZZ    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))

# Several programs share the cores: threads that wait for each other spin for microseconds, then
# sleep.  Without spinning each barrier is a system call, and small steps take five times as long.
WAIT    := OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=1000

$(B)/tests/fault/run: $(FAULTS:%.c=$(B)/%.o) $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK) -lcmocka

# Prints what a reader makes of a file of another program (tests/oracle/outside_suites.py).
$(B)/tests/read_file: $(B)/tests/programs/read_file.o $(ROOMS) $(B)/list
	$(call say,link)
	$(LINK)

UNRACED := app config/import doctor infer plot runs slurm # no test of ranks needs them
$(B)/tests/race: $(filter-out $(STUBBED) $(UNRACED:%=$(B)/src/%/%),$(ROOMS))
$(B)/tests/race: $(EMULATOR:%.c=$(B)/%.o) $(call emulated,32) \
    $(filter-out $(addprefix $(B)/$(VENDOR)/,hipblaslt_% rocblas_%),$(STUB)) $(B)/list
$(B)/tests/race: $(RACE:%.c=$(B)/%.o)
	$(call say,link)
	$(LINK) -lcmocka

# The kernels call a function at each access, which tests/memcheck defines (--wrap: and redirects the
# allocations of its own program).  UBSan finds other undefined behavior in them: without null,
# alignment and object-size, which would check the same accesses again, and without
# pointer-overflow, whose checks add a third to a half to the size of an object.
define compile_checked
$(B)/src/backends/gpu/kernels/%.checked$(1).o: src/backends/gpu/kernels/%.cu $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,c++)
	$$(Q)$$(EMULATED_CXX) $$(CHECKED) $$(UBSAN) -DGPU_EMULATED=$(1) -c -o $$@ $$<
	$$(Q)$$(SHARED_SECTION) $$@
endef
# The uninitialized variables of a kernel's file are its __shared__ ones.
SHARED_SECTION := objcopy --rename-section .bss=emulated_shared,alloc,load,contents,data
CHECKED := -O2 -fsanitize=thread --param tsan-instrument-func-entry-exit=0 \
    --param tsan-distinguish-volatile=1 -DGPU_CHECKED -Wno-attributes
UBSAN   := -fsanitize=undefined -fno-sanitize=null,alignment,object-size,pointer-overflow \
    -fno-sanitize-recover=all
$(foreach warp,32 64,$(eval $(call compile_checked,$(warp))))
CHECKED_KERNELS := $(foreach warp,32 64,$(GPU_KERNELS:%.cu=$(B)/%.checked$(warp).o))
CHECKS := $(wildcard tests/memcheck/*.c tests/backends/gpu/kernels/*.c tests/ops/*.c) tests/main.c \
    tests/comm/launched.c
WRAPPED := malloc calloc realloc free arena_init arena_release arena_alloc \
    rig_each_backend emulator_set_relaxed
$(B)/tests/%.checked.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -DTEST_CHECKED -Itests -c -o $@ $<
$(B)/tests/memcheck/test_memcheck.checked.o: private OWN := $(CHECKED)
$(B)/tests/memcheck/test_memcheck.checked.o: tests/memcheck/test_memcheck.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -Itests -c -o $@ $<
	$(Q)$(SHARED_SECTION) $@
$(B)/tests/memcheck/run: $(filter-out $(STUBBED),$(ROOMS)) $(CHECKS:%.c=$(B)/%.checked.o) \
    $(call kernels,amx_emulated) $(CHECKED_KERNELS) \
    $(filter-out $(B)/src/backends/gpu/kernels/%,$(EMULATED_GPU)) $(B)/list
	$(call say,link)
	$(LINK) -lcmocka $(WRAPPED:%=-Wl,--wrap=%) $(UBSAN)
-include $(CHECKED_KERNELS:.o=.d) $(CHECKS:%.c=$(B)/%.checked.d)

gpu-memcheck: $(B)/tests/memcheck/run ## check every memory access of the emulated GPU kernels; T=word
	@$(WAIT) $(B)/tests/memcheck/run $(T)

$(B)/tests/libfault.so: tests/fault/preload/fault.c
$(B)/tests/libjournal.so: tests/fault/preload/journal.c
$(B)/tests/libcount.so: tests/system/preload/count_allocations.c
$(B)/tests/lib%.so: $(B)/flags $(B)/mpi-flags
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) -std=c17 -O2 -g $(WARN) -D_GNU_SOURCE $(if $(MPI_LIBS),-DFAULT_MPI $(MPI_CFLAGS)) \
	    -fPIC -shared -o $@ $(filter %.c,$^) -ldl

# An archive, so that a fuzzer links only what it uses: fewer coverage counters to reset per run.
# Of the rooms in UNFUZZED the fuzzers link nothing but the files in ALSO_FUZZED: to compile all of
# them would take long.
UNFUZZED    := plot runs train backends comm machine infer perf slurm doctor app metrics optim \
               parallel checkpoint model ops tensor tasks
ALSO_FUZZED := comm/comm comm/transfer checkpoint/manifest checkpoint/interop/% model/layout \
               model/model_shape model/params ops/rope tensor/queue tensor/trace \
               tasks/task_format tasks/task_text
FUZZED_ROOMS = $(filter-out $(UNFUZZED:%=$(B)/src/%/%),$(ROOMS)) \
               $(filter $(ALSO_FUZZED:%=$(B)/src/%.o),$(ROOMS))
$(B)/rooms.a: $(FUZZED_ROOMS) $(B)/list
	$(call say,ar)
	$(Q)rm -f $@ && ar rcs $@ $(FUZZED_ROOMS)

$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(B)/rooms.a
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,--as-needed $(LIBS) -fsanitize=fuzzer

test: $(B)/llamero $(B)/tests/run $(B)/tests/llamero-gpu $(B)/tests/llamero-gpu64
test: $(B)/tests/gpu_check-gpu $(PRELOAD) $(if $(UNDRIVEN),$(DRIVER))
test: ## run the tests; T=word: only those whose name or file contains it; T=-word: others
	@$(if $(UNDRIVEN),$(DRIVING)) $(WAIT) LLAMERO=$(B)/llamero \
	LLAMERO_GPU=$(B)/tests/llamero-gpu LLAMERO_GPU64=$(B)/tests/llamero-gpu64 \
	LLAMERO_GPU_CHECK=$(B)/tests/gpu_check-gpu \
	LLAMERO_COUNTER=$(filter %/libcount.so,$(PRELOAD)) \
	LLAMERO_PRELOAD=$(filter %/libfault.so,$(PRELOAD)) \
	LLAMERO_MPIRUN=$(MPICC:mpicc%=mpirun%) $(B)/tests/run $(T)

# Recompiles only comm/mpi against MPICH, and runs only the tests that use a launcher.
test-mpich: $(B)/llamero $(B)/tests/run ## run the tests of launched ranks with MPICH; T=word
	@mkdir -p $(B)/mpich && cp -pru $(B)/flags $(B)/gpu-flags $(B)/src $(B)/tests $(B)/mpich
	@rm -f $(B)/mpich/mpi-flags # the copied comm/mpi is that of the other MPI
	@for t in $(or $(T),test_launched test_mpi); do \
	    $(MAKE) test T=$$t B=$(B)/mpich EMULATED_DIR=$(B) MPICC=mpicc.mpich || exit 1; done

test-slurm: $(B)/llamero ## train on a Slurm cluster of network namespaces (root), in minutes
	@LLAMERO=$(B)/llamero tests/slurm/run

# Without SHORT every n-th call fails, in hours; CONTRIBUTING.md tells how to reproduce a row.
fault: $(B)/tests/libjournal.so
fault: $(B)/llamero $(B)/tests/fault/run $(B)/tests/libfault.so ## inject faults; T=word; SHORT=1
	@rm -f $(B)/fault.txt; code=0; $(WAIT) LLAMERO=$(B)/llamero \
	LLAMERO_PRELOAD=$(abspath $(B)/tests/libfault.so) LLAMERO_FAULT_TABLE=$(B)/fault.txt \
	LLAMERO_MPIRUN=$(MPICC:mpicc%=mpirun%) $(if $(SHORT),LLAMERO_FAULT_POINTS=$(FAULT_POINTS)) \
	$(B)/tests/fault/run $(T) > $(B)/fault.log 2>&1 || code=$$?; \
	printf '%-17s %-46s %6s %8s %5s  %s\n' scene fault tried survived lost message; \
	sort $(B)/fault.txt; \
	grep -B 1 -A 5 -e '^lost' -e ' --- ' -e '^\[  FAILED' $(B)/fault.log | cut -c 1-400; \
	tail -n 1 $(B)/fault.log; exit $$code
FAULT_POINTS := 16 # of each row, times its share

# The tests with sanitizers: out-of-bounds accesses, leaks and undefined behavior.  -O1 would inline
# each test's helpers, which sanitizers then instrument many times.  The kernels of amx run as
# amx_emulated.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# Compiled first, or both makes of `make -j sanitize race` would write these objects.
sanitize: $(call emulated_kernels,32) $(call emulated_kernels,64)
sanitize: ## run the tests under ASan and UBSan; T=word
	@ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=tools/lsan.supp:print_suppressions=0 \
	UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) test T='$(T)' B=$(B)/sanitize EMULATED_DIR=$(B) \
	    OPT='-O1 -g1' TEST_OPT=-Og HARDEN= LDFLAGS= PRELOAD= ISAS='$(filter-out amx,$(ISAS))' \
	    UNTESTED='$(patsubst -%/,%/test_%,$(filter -tests/%/,$(T)))' \
	    EXTRA='$(SANITIZE) -Wno-maybe-uninitialized -DLLAMERO_CHECK_COLLECTIVES'

# Ranks are threads in these tests and use one thread each: TSan does not understand libgomp.  One
# ISA is enough: which memory ranks share does not depend on the kernels.
race: $(call emulated_kernels,32)
race: ## run the tests of ranks under TSan; T=word
	@$(MAKE) $(B)/race/tests/race B=$(B)/race EMULATED_DIR=$(B) OPT='-O1 -g1' HARDEN= \
	    LDFLAGS= ISAS='$(firstword $(ISAS))' EXTRA='-fsanitize=thread -DLLAMERO_CHECK_COLLECTIVES'
	@$(WAIT) $(B)/race/tests/race $(T)

FUZZ_CC ?= clang
FUZZ_FINDS := -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow
fuzz: ## build the fuzzers, build/fuzz/*; RUNS=n: run each n times; ONE=name: only that one
	@$(MAKE) fuzzers B=$(B)/fuzzing CC=$(FUZZ_CC) OPT='-O2 -g1' HARDEN= LDFLAGS= \
	    EXTRA='$(FUZZ_FINDS) -fno-sanitize-recover=all -w'
	@mkdir -p $(B)/fuzz && for name in $(FUZZ); do ln -sf ../fuzzing/fuzz/$$name $(B)/fuzz/; done
	@$(if $(RUNS),tools/fuzz $(B) $(RUNS) $(or $(ONE),$(FUZZ)))
fuzzers: $(FUZZ:%=$(B)/fuzz/%)
