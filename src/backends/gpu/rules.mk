# rules.mk -- compiles the GPU backend with a toolkit, over the emulator, and against stubs.
# SPDX-License-Identifier: Apache-2.0

$(B)/src/comm/nccl/%.o: private OWN := $(GPU_FLAGS)
$(B)/%.stub.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<
$(B)/src/comm/nccl/%.stub.o $(B)/tests/comm/nccl/%.o: private OWN := -Itests/comm/nccl/stub
CUBLASLT_STUB := -DGPU_CUBLASLT -Itests/backends/gpu/vendor/stub
$(B)/$(VENDOR)/cublaslt_%.stub.o: private OWN := $(CUBLASLT_STUB)
CUBLASLT_TESTS := $(B)/tests/backends/gpu/vendor/test_cublaslt_%.o \
    $(B)/tests/backends/gpu/vendor/stub_cublaslt.o
HIPBLASLT_STUB := -DGPU_HIPBLASLT -DGPU_EMULATED=64 -DHIPBLASLT_CHUNK=131072
$(B)/$(VENDOR)/hipblaslt_%.stub.o $(B)/$(VENDOR)/rocblas_%.stub.o: private OWN := $(HIPBLASLT_STUB)
HIPBLASLT_TESTS := $(foreach name,test_hipblaslt_% test_rocblas_% stub_hipblaslt stub_rocblas,\
    $(B)/tests/backends/gpu/vendor/$(name).o)
$(HIPBLASLT_TESTS): private OWN := $(if $(filter hip,$(GPU)),$(GPU_FLAGS),$(HIPBLASLT_STUB))
$(CUBLASLT_TESTS): private OWN := $(if $(filter cuda,$(GPU)),$(GPU_FLAGS),$(CUBLASLT_STUB))
$(B)/tests/backends/gpu/vendor/test_cudnn_queue.o: private OWN := $(GPU_FLAGS)
$(B)/tests/backends/gpu/vendor/test_cudnn_queue.o: $(B)/gpu-flags

# The GPU backend over the emulator, once per warp size.  Its external symbols carry the warp size
# in their names; weak ones are not allowed, because the linker would merge both builds'.  Kernels
# compile twice as fast with -O2, which runs as fast as -O3.  `sanitize` and `race` link the objects
# of `test` (EMULATED_DIR), without sanitizers: gpu-memcheck checks the kernels, and no test under
# TSan runs them.  Local arrays start as large numbers, not as what an earlier thread left on the
# stack, from gcc 12 on; gcc 14 misaligns such arrays in the red zone of functions that call no
# other.  gcc for ARM64 has no -mno-red-zone.
NO_LEFTOVERS := $(foreach option,-ftrivial-auto-var-init=pattern -mno-red-zone,\
    $(shell $(CXX) $(option) -x c++ -E /dev/null >/dev/null 2>&1 && echo $(option)))
EMULATED_CXX = $(CXX) -x c++ -std=c++17 -O2 -g1 $(ARCH) $(MATH) -Wall -Wextra $(ERRORS) \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-weak -fno-strict-aliasing \
    $(NO_LEFTOVERS) -Wno-unused-function -Wno-maybe-uninitialized -Wno-unknown-pragmas \
    -fPIE $(DEFINES) -Isrc -MMD -MP
define compile_emulated
$(B)/src/backends/gpu/%.emu$(1).o: src/backends/gpu/%.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,cc)
	$$(Q)$$(COMPILE) -DGPU_EMULATED=$(1) -c -o $$@ $$<

$(EMULATED_DIR)/src/backends/gpu/%.emu$(1).o: src/backends/gpu/%.cu $(EMULATED_DIR)/emulated-flags
	@mkdir -p $$(@D)
	$$(call say,c++)
	$$(Q)$$(EMULATED_CXX) -DGPU_EMULATED=$(1) -c -o $$@ $$<
endef
$(foreach warp,32 64,$(eval $(call compile_emulated,$(warp))))
$(EMULATED_DIR)/emulated-flags: FORCE
	$(call stamp,$(EMULATED_CXX))

# Suspends threads for kernels, which no sanitizer sees either.
$(B)/src/backends/gpu/emulator/thread_block.o: private OWN := -fno-sanitize=all

# The whole program over an emulated GPU, for tests of its commands: tests/llamero-gpu with warps of
# 32 lanes, llamero-gpu64 with those of 64.
GPU_OBJECTS := $(B)/src/backends/gpu/% $(B)/src/comm/nccl/% $(B)/src/machine/gpu.o
define link_emulated
$(B)/src/machine/gpu.emu$(1).o: src/machine/gpu.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,cc)
	$$(Q)$$(COMPILE) -DLLAMERO_GPU=1 -DLLAMERO_NCCL=0 -DLLAMERO_GPU_NAME=\"$(2)\" \
	    -DLLAMERO_GPU_PREFIX=gpu_emu$(1) -c -o $$@ $$<
$(B)/tests/$(3): $(filter-out $(GPU_OBJECTS),$(OBJECTS)) $(EMULATOR:%.c=$(B)/%.o)
$(B)/tests/$(3): $(call emulated,$(1)) $(B)/src/machine/gpu.emu$(1).o $(B)/list
	@mkdir -p $$(@D)
	$$(call say,link)
	$$(LINK)
endef
$(eval $(call link_emulated,32,cuda,llamero-gpu))
$(eval $(call link_emulated,64,hip,llamero-gpu64))

$(B)/tests/programs/gpu_check.emu32.o: tests/programs/gpu_check.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) $(TEST_OPT) -Itests -DLLAMERO_NCCL=0 -c -o $@ $<
$(B)/tests/gpu_check-gpu: $(filter-out $(GPU_OBJECTS),$(ROOMS)) $(EMULATOR:%.c=$(B)/%.o)
$(B)/tests/gpu_check-gpu: $(call emulated,32) $(B)/src/machine/gpu.emu32.o $(B)/list
$(B)/tests/gpu_check-gpu: $(B)/tests/programs/gpu_check.emu32.o $(B)/tests/system/device_check.o
	$(call say,link)
	$(LINK)

# Kernels that call __tsan_readN and __tsan_writeN for each access (tests/programs/gpu_budget.c).
# With CUDA, cuBLASLt and cuDNN do the work of the others.
UNCOUNTED := $(addprefix src/backends/gpu/kernels/,gemm.cu attention.cu attention_backward.cu)
$(B)/src/backends/gpu/%.counted.o: src/backends/gpu/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(call say,c++)
	$(Q)$(EMULATED_CXX) -fsanitize=thread --param tsan-instrument-func-entry-exit=0 \
	    -DGPU_EMULATED=32 -c -o $@ $<
COUNTED := $(patsubst %.cu,$(B)/%.counted.o,$(filter-out $(UNCOUNTED),$(GPU_KERNELS)))
$(B)/tests/gpu_budget: $(B)/tests/programs/gpu_budget.o $(B)/tests/system/gpu_budget.o $(ROOMS) \
    $(EMULATOR:%.c=$(B)/%.o) $(GPU_SHARED:%.c=$(B)/%.emu32.o) $(COUNTED) \
    $(UNCOUNTED:%.cu=$(EMULATED_DIR)/%.emu32.o)
	$(call say,link)
	$(LINK)
-include $(COUNTED:.o=.d) $(B)/tests/programs/gpu_budget.d $(B)/tests/programs/gpu_check.d
-include $(B)/tests/programs/gpu_check.emu32.d $(B)/src/machine/gpu.emu32.d
-include $(B)/src/machine/gpu.emu64.d
gpu-budget: $(B)/tests/gpu_budget ## count launches and bytes of training steps: docs/gpu-budget.md
	$(B)/tests/gpu_budget page docs/gpu-budget.md tests/system/data/gpu_budget_before.txt

# What is compiled with CUDA or HIP, or depends on which of them: rebuilt when that changes.
$(B)/src/backends/gpu/%.o: private OWN := $(GPU_FLAGS)
$(B)/src/backends/gpu/%.emu32.o $(B)/src/backends/gpu/%.emu64.o: private OWN :=
GPU_DEPENDENT := $(B)/src/machine/gpu.o
$(GPU_DEPENDENT): private OWN += -DLLAMERO_GPU=$(if $(GPU),1,0) -DLLAMERO_NCCL=$(HAS_NCCL) \
    $(if $(GPU),-DLLAMERO_GPU_NAME=\"$(GPU)\" -DLLAMERO_GPU_PREFIX=gpu)
$(GPU_DEPENDENT) $(filter $(B)/src/backends/gpu/% $(B)/src/comm/nccl/%,$(OBJECTS)): $(B)/gpu-flags
$(filter $(CUBLASLT_TESTS) $(HIPBLASLT_TESTS),$(TESTS:%.c=$(B)/%.o)): $(B)/gpu-flags
# clang leaves empty folders in TMPDIR.
gpu-kernels: $(filter $(B)/src/backends/gpu/kernels/%,$(OBJECTS))
$(B)/src/backends/gpu/kernels/%.o: src/backends/gpu/kernels/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(call say,$(GPU))
	$(Q)mkdir -p $@.tmp; code=0; TMPDIR=$@.tmp \
	    $(GPU_CC) -D_GNU_SOURCE -Isrc -MMD -MP -c -o $@ $< || code=$$?; rm -rf $@.tmp; exit $$code

# A stub of the CUDA driver, so that cuDNN can build plans for an H200 on machines without a GPU.
DRIVER  := $(B)/tests/driver/libcuda.so.1
DRIVING  = LD_LIBRARY_PATH=$(dir $(DRIVER))$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}
$(DRIVER): tests/backends/gpu/vendor/preload/libcuda.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) -std=c17 -O2 $(WARN) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

# gpu_check as nvcc compiles it, over a CUDA runtime that executes PTX on the CPU, and the tests of
# operations on the same device.
PTX := $(patsubst %.c,$(B)/%.o,$(filter-out %/test_ptx.c,$(wildcard tests/ptx/*.c)))
$(B)/tests/ptx/%.o: private TEST_OPT := -O3 -ffp-contract=off
$(B)/tests/ptx/cudart.o: private OWN := $(GPU_FLAGS)
$(B)/tests/gpu_check-ptx: $(B)/tests/programs/gpu_check.o $(B)/tests/system/device_check.o
$(B)/tests/gpu_check-ptx: $(ROOMS) $(PTX) $(B)/list
	$(call say,link)
	$(LINK)
PTX_TESTS := $(wildcard tests/ops/*.c tests/backends/gpu/kernels/*.c) tests/main.c \
    tests/comm/launched.c
$(B)/tests/%.ptx.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) $(TEST_OPT) -include tests/ptx/renamed.h -Itests -c -o $@ $<
$(B)/tests/ptx/run: $(PTX_TESTS:%.c=$(B)/%.ptx.o) $(ROOMS) $(PTX)
$(B)/tests/ptx/run: $(call kernels,amx_emulated) $(B)/list
	$(call say,link)
	$(LINK) -lcmocka
-include $(B)/tests/ptx/cudart.d $(PTX_TESTS:%.c=$(B)/%.ptx.d)
gpu-ptx: $(if $(filter cuda,$(GPU)),$(B)/tests/ptx/run $(B)/tests/gpu_check-ptx)
gpu-ptx: ## CUDA=1 NVCC_FLAGS=--no-compress: run the kernels' PTX on the CPU; T=word
	$(if $(filter cuda,$(GPU)),,$(error gpu-ptx requires CUDA=1))
	@$(if $(T),,ONE_PROCESS=1 $(B)/tests/gpu_check-ptx odd)
	@$(WAIT) PTX_CAPABILITY=80 $(B)/tests/ptx/run $(T)

gpu-build: ## compile for NVIDIA and AMD GPUs, with the compilers found; build cuDNN plans
	@tools/gpu_build $(B)

gpu-check: $(B)/tests/run $(DRIVER) ## CUDA=1: check cuDNN plans for every recipe, without a GPU
	@$(DRIVING) $(B)/tests/run cudnn test_cublaslt_load test_nccl_load

$(B)/gpu-flags: FORCE
	$(call stamp,$(GPU) $(GPU_FLAGS) $(HAS_NCCL) $(if $(GPU),$(GPU_CC)))
