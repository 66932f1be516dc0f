# toolkit.mk -- finds CUDA or HIP, NCCL or RCCL, and lists the sources that they add.
# SPDX-License-Identifier: Apache-2.0

# CUDA=1 (the toolkit of the nvcc on PATH; CUDA=folder: another one) or HIP=1 (ROCm of ROCM_PATH,
# else of the hipcc on PATH; HIP=folder: another one) adds the GPU backend to the program.  The
# tests run it on an emulator, which needs only a C++ compiler.
comma     := ,
CXX       ?= g++
# The path of a compiler, and the folder above its own; empty if it is not installed.
compiler   = $(shell command -v $(firstword $(1)))
home       = $(realpath $(addsuffix ..,$(dir $(realpath $(compiler)))))
ifneq ($(filter-out 0,$(CUDA)),)
GPU       := cuda
NVCC      ?= $(addsuffix /bin/,$(filter-out 1,$(CUDA)))nvcc
CUDA_HOME := $(call home,$(NVCC))
ifeq ($(CUDA_HOME),)
$(error CUDA=1 requires nvcc on PATH, or CUDA=folder of a toolkit; see docs/install.md)
endif
# Libraries are in the toolkit's folder, or in folders next to it as Python's packages install them.
# The program opens cuBLASLt, cuDNN and NCCL with dlopen (base/library.h), which searches these
# folders, too; the CUDA runtime is linked statically.
CUDA_DIRS := $(CUDA_HOME) $(CUDA_HOME)/../cudnn $(CUDA_HOME)/../nccl
CUDA_LIB   = $(firstword $(wildcard $(foreach dir,$(CUDA_DIRS:%=%/lib64) $(CUDA_DIRS:%=%/lib),\
                 $(1:%=$(dir)/lib%))))
# Code for A100, H100 and B200, and PTX, which the driver compiles for other and later GPUs.
# CUDA_PTX_100=90 makes B200's code from H100's PTX.
CUDA_KINDS := 80 90 $(filter 100,$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null)))
# Line numbers for profilers, cuda-gdb and compute-sanitizer; gpu-build, which runs nothing,
# compiles without.
LINE_INFO  ?= -lineinfo
CUDA_ARCH  ?= $(foreach kind,$(CUDA_KINDS),\
                  -gencode arch=compute_$(or $(CUDA_PTX_$(kind)),$(kind)),code=sm_$(kind)) \
                  -gencode arch=compute_90,code=compute_90
GPU_FLAGS := -DGPU_CUDA $(patsubst %,-isystem %,$(wildcard $(CUDA_DIRS:%=%/include)))
CUDA_RUNTIME := $(or $(call CUDA_LIB,cudart_static.a),-lcudart_static)
GPU_LIBS   = $(CUDA_RUNTIME) -lrt
GPU_PATHS  = $(sort $(realpath $(foreach name,cublasLt cudnn nccl,\
                 $(dir $(call CUDA_LIB,$(name).so $(name).so.*)))))
UNDRIVEN  := $(if $(shell ldconfig -p 2>/dev/null | grep -F libcuda.so.1),,1)
GPU_CC     = $(NVCC) -std=c++17 -O3 $(CUDA_ARCH) $(LINE_INFO) $(NVCC_FLAGS) -DGPU_CUDA \
    -Xcompiler -Wall,-fPIE,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
else ifneq ($(filter-out 0,$(HIP)),)
GPU       := hip
HIP_DIRS  := $(or $(filter-out 1,$(HIP)),$(ROCM_PATH))
HIPCC     ?= $(firstword $(wildcard $(addsuffix /bin/hipcc,$(HIP_DIRS))) hipcc)
ifeq ($(call compiler,$(HIPCC)),)
$(error HIP=1 requires hipcc on PATH, or HIP=folder of ROCm; see docs/install.md)
endif
# As the path names it (/opt/rocm), or, where the compiler is a link, the folder of its target.
HIP_DIRS  += $(if $(filter-out 1,$(HIP)),,\
                 $(dir $(call compiler,$(HIPCC))).. $(call home,$(HIPCC)))
HIP_HOME  := $(firstword $(foreach dir,$(HIP_DIRS),\
                 $(if $(wildcard $(dir)/include/hip/hip_runtime.h),$(abspath $(dir)))))
ifeq ($(HIP_HOME),)
$(error HIP=$(HIP): no include/hip/hip_runtime.h in $(HIP_DIRS); see docs/install.md)
endif
# ROCm is in a folder of its own, Debian's packages are in /usr, where compilers search anyway.
HIP_DIR   := $(filter-out /usr,$(HIP_HOME))
# Code for MI210 and MI250X, MI300A and MI300X, MI350X and MI355X, as far as hipcc supports them.
ifndef HIP_ARCH
TRY_KIND   = $(HIPCC) -$(hash)$(hash)$(hash) -x hip --offload-arch=$(kind) -c /dev/null
HIP_ARCH  := $(or $(strip $(foreach kind,gfx90a gfx942 gfx950,\
                 $(if $(shell $(TRY_KIND) >/dev/null 2>&1 && echo 1),--offload-arch=$(kind)))),\
                 --offload-arch=gfx90a)
endif
GPU_FLAGS := -DGPU_HIP -D__HIP_PLATFORM_AMD__ $(HIP_DIR:%=-isystem %/include) \
    -DGPU_ARCH='"$(strip $(HIP_ARCH))"'
GPU_LIBS   = $(HIP_DIR:%=-L%/lib) -lamdhip64
# The folder of this version first; /opt/rocm still exists after an update.
GPU_PATHS  = $(realpath $(HIP_DIR:%=%/lib)) \
    $(filter-out $(realpath $(HIP_DIR:%=%/lib)),$(HIP_DIR:%=%/lib))
# Kernels access bf16 elements in shared memory as uint32_t, uint64_t and uint4, too.
GPU_CC     = $(HIPCC) -x hip -std=c++17 -O3 $(HIP_ARCH) -Wall -fPIE -fno-strict-aliasing -DGPU_HIP
endif
# NCCL's or RCCL's header is optional: NCCL=0 leaves the library out.
ifneq ($(and $(GPU),$(filter-out 0,$(or $(NCCL),1))),)
NCCL_HEADER := $(if $(filter hip,$(GPU)),rccl/rccl.h,nccl.h)
HAS_NCCL    := $(or $(call finds,$(NCCL_HEADER),$(GPU_FLAGS) $(EXTRA)),0)
ifeq ($(HAS_NCCL),0)
NCCL_ERROR  := $(shell echo '$(hash)include <$(NCCL_HEADER)>' | \
                   LC_ALL=C $(CC) -E -xc $(GPU_FLAGS) $(EXTRA) - 2>&1 >/dev/null | grep -m1 error:)
$(info building without NCCL or RCCL (NCCL=0): $(NCCL_ERROR))
endif
else
HAS_NCCL    := 0
endif

# The vendors' libraries belong to one runtime each; the emulator is only for tests.
VENDOR      := src/backends/gpu/vendor
GPU_SHARED  := $(wildcard src/backends/gpu/*.c)
GPU_VENDOR  := $(wildcard $(VENDOR)/*.c)
GPU_cuda    := $(VENDOR)/cudnn_% $(VENDOR)/cublaslt_%
GPU_hip     := $(VENDOR)/hipblaslt_% $(VENDOR)/rocblas_%
EMULATOR    := $(wildcard src/backends/gpu/emulator/*.c)
GPU_KERNELS := $(wildcard src/backends/gpu/kernels/*.cu)
VENDOR_ABSENT := $(filter-out $(if $(GPU),$(GPU_$(GPU))),$(GPU_VENDOR))
# The tests link comm/nccl with stubs of NCCL (instead of nccl_load.c) and of streams, which need no
# device.
STUBBED := $(B)/src/comm/nccl/%.o
STUB    := $(patsubst %.c,$(B)/%.stub.o,\
               $(filter-out %/side_stream.c %/nccl_load.c,$(wildcard src/comm/nccl/*.c)))
# Without CUDA, the tests link what calls cuBLASLt against a stub of it; hipBLASLt and
# rocBLAS likewise.
STUB    += $(if $(filter cuda,$(GPU)),,\
               $(patsubst %.c,$(B)/%.stub.o,$(filter-out %/cublaslt_load.c,\
                   $(filter $(VENDOR)/cublaslt_%,$(GPU_VENDOR)))))
STUB    += $(if $(filter hip,$(GPU)),,\
               $(patsubst %,$(B)/$(VENDOR)/%_gemm.stub.o,hipblaslt rocblas))
EMULATED_DIR ?= $(B)
emulated_kernels = $(GPU_KERNELS:%.cu=$(EMULATED_DIR)/%.emu$(1).o)
emulated = $(GPU_SHARED:%.c=$(B)/%.emu$(1).o) $(call emulated_kernels,$(1))
EMULATED_GPU := $(EMULATOR:%.c=$(B)/%.o) $(call emulated,32) $(call emulated,64)
