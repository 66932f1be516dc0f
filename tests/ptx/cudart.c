/* cudart.c -- the CUDA runtime, as far as the program calls it, over one device that runs PTX on
 * the CPU (ptx.h).  Linked instead of NVIDIA's library, it runs the program as nvcc compiles it.
 *
 * Streams do their work at once: the emulator of src/backends/gpu, not this runtime, finds a host
 * that does not wait.  Device memory is the process's own.  There is no cuBLASLt, cuDNN or NCCL.
 * PTX_CAPABILITY in the environment is the device's compute capability: 80, or 90, the default. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/ptx.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PUBLIC __attribute__((visibility("default")))

enum { MEMORY_GIB = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local cudaError_t last_error;
static cudaError_t sticky; /* after an error in a kernel the device is unusable */
static size_t allocated;

static cudaError_t report(cudaError_t error)
{
    if (!error) error = sticky;
    if (error) last_error = error;
    return error;
}

/* --- fat binaries --- */

struct binary {
    const void *data;
    char *text;
    struct ptx_module *module;
};

struct function {
    const void *host;
    char *name;
    struct binary *binary;
    struct ptx_kernel *kernel;
    struct function *next;
};
static struct function *functions;

/* What nvcc puts into the object file: a header, and entries of code or PTX. */
struct wrapper {
    int magic, version;
    const void *data, *file;
};
struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t arch, name_offset, name_bytes;
    uint64_t flags, zero, uncompressed_bytes;
};
enum { KIND_PTX = 1 };

static char *find_ptx(const void *data)
{
    const struct fat_header *h = data;
    const char *at = (const char *)data + h->header_bytes, *end = at + h->bytes;
    while (at < end) {
        const struct fat_entry *e = (const void *)at;
        if (e->kind == KIND_PTX) {
            if (e->uncompressed_bytes) {
                fprintf(stderr, "ptx: compressed PTX; compile with --no-compress\n");
                return NULL;
            }
            return strndup(at + e->header_bytes, e->bytes);
        }
        at += e->header_bytes + e->bytes;
    }
    fprintf(stderr, "ptx: no PTX in this program\n");
    return NULL;
}

PUBLIC void **__cudaRegisterFatBinary(const struct wrapper *w)
{
    struct binary *b = calloc(1, sizeof *b);
    if (!b) abort();
    b->data = w->data;
    return (void **)b;
}
PUBLIC void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
PUBLIC void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
PUBLIC char __cudaInitModule(void **handle)
{
    (void)handle;
    return 0;
}

/* With PTX_COVERAGE in the environment: which kernels have run, and how much of them. */
static void report_coverage(void)
{
    for (struct function *f = functions; f; f = f->next) {
        struct ptx_kernel *k = f->kernel;
        int of = k && k->launches ? k->num_instructions : 0;
        fprintf(stderr, "ptx: %d of %d instructions: %s\n", of ? ptx_executed(k) : 0, of, f->name);
    }
}

PUBLIC void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                                   int limit, void *tid, void *bid, void *block, void *grid,
                                   int *size)
{
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    struct function *f = calloc(1, sizeof *f);
    if (!f) abort();
    *f = (struct function){host, strdup(name), (struct binary *)handle, NULL, functions};
    if (!functions && getenv("PTX_COVERAGE")) atexit(report_coverage);
    functions = f;
}

PUBLIC void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                              size_t size, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant;
    (void)global;
}

static struct ptx_kernel *find_kernel(const void *host)
{
    struct function *f = functions;
    while (f && f->host != host) f = f->next;
    if (!f) return NULL;
    struct binary *b = f->binary;
    if (!f->kernel && !b->text) {
        b->text = find_ptx(b->data);
        if (b->text) b->module = ptx_open(b->text);
    }
    if (!f->kernel && b->module) {
        f->kernel = ptx_find(b->module, f->name);
        if (!f->kernel)
            fprintf(stderr, "ptx: kernel %s is not in its module\n", f->name);
        else if (!ptx_parse(b->module, f->kernel))
            f->kernel = NULL;
    }
    return f->kernel;
}

/* --- launches --- */

struct node {
    enum { LAUNCH, COPY, SET } kind;
    struct ptx_kernel *kernel;
    struct ptx_dim grid, block;
    size_t shared;
    void **arguments; /* copies of them */
    void *to;
    const void *from;
    size_t bytes;
    int value;
};

struct CUgraph_st {
    struct node *nodes;
    int count;
};

struct CUstream_st {
    struct CUgraph_st *capture;
};
struct CUevent_st {
    struct timespec at;
};

static cudaError_t run_node(const struct node *n)
{
    if (n->kind == COPY) {
        memmove(n->to, n->from, n->bytes);
    } else if (n->kind == SET) {
        memset(n->to, n->value, n->bytes);
    } else if (!ptx_run(n->kernel, n->grid, n->block, n->arguments, n->shared)) {
        return sticky = cudaErrorIllegalAddress;
    }
    return cudaSuccess;
}

static cudaError_t submit(struct CUstream_st *stream, struct node n)
{
    if (!stream || !stream->capture) return run_node(&n);
    struct CUgraph_st *g = stream->capture;
    g->nodes = realloc(g->nodes, (size_t)(g->count + 1) * sizeof *g->nodes);
    if (!g->nodes) abort();
    if (n.kind == LAUNCH) {
        void **copies = calloc((size_t)n.kernel->num_parameters + 1, sizeof *copies);
        if (!copies) abort();
        for (int i = 0; i < n.kernel->num_parameters; i++) {
            copies[i] = malloc(n.kernel->parameters[i].bytes);
            if (!copies[i]) abort();
            memcpy(copies[i], n.arguments[i], n.kernel->parameters[i].bytes);
        }
        n.arguments = copies;
    }
    g->nodes[g->count++] = n;
    return cudaSuccess;
}

static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configuration;

PUBLIC unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    configuration.grid = grid, configuration.block = block;
    configuration.shared = shared, configuration.stream = stream;
    return 0;
}

PUBLIC cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configuration.grid, *block = configuration.block;
    *shared = configuration.shared;
    *(void **)stream = configuration.stream;
    return cudaSuccess;
}

PUBLIC cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host)
{
    pthread_mutex_lock(&lock);
    *out = (cudaKernel_t)find_kernel(host);
    pthread_mutex_unlock(&lock);
    return report(*out ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

static int multiprocessor_shared(void)
{
    const char *capability = getenv("PTX_CAPABILITY");
    return capability && atoi(capability) == 80 ? 163 << 10 : 227 << 10;
}

PUBLIC cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream)
{
    struct ptx_kernel *k = (struct ptx_kernel *)kernel;
    if (!k) return report(cudaErrorInvalidDeviceFunction);
    unsigned threads = block.x * block.y * block.z, most = k->max_threads ? k->max_threads : 1024;
    size_t limit = k->max_dynamic_shared ? k->max_dynamic_shared : (48 << 10) - k->static_shared;
    if (!threads || threads > most || !grid.x || !grid.y || !grid.z || grid.y > 65535 ||
        grid.z > 65535 || shared > limit) {
        fprintf(stderr,
                "ptx: kernel %.*s: cannot launch %u x %u x %u blocks of %u threads (at most %u) "
                "with %zu bytes (at most %zu)\n",
                (int)k->name_length, k->name, grid.x, grid.y, grid.z, threads, most, shared, limit);
        return report(cudaErrorInvalidConfiguration);
    }
    struct node n = {.kind = LAUNCH,
                     .kernel = k,
                     .grid = {grid.x, grid.y, grid.z},
                     .block = {block.x, block.y, block.z},
                     .shared = shared,
                     .arguments = arguments};
    pthread_mutex_lock(&lock);
    cudaError_t error = sticky ? sticky : submit(stream, n);
    pthread_mutex_unlock(&lock);
    return report(error);
}

PUBLIC cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute name, int value)
{
    pthread_mutex_lock(&lock);
    struct ptx_kernel *k = find_kernel(host);
    pthread_mutex_unlock(&lock);
    if (!k) return report(cudaErrorInvalidDeviceFunction);
    if (name != cudaFuncAttributeMaxDynamicSharedMemorySize ||
        (size_t)value + k->static_shared > (size_t)multiprocessor_shared())
        return report(cudaErrorInvalidValue);
    k->max_dynamic_shared = (size_t)value;
    return cudaSuccess;
}

/* --- device --- */

PUBLIC cudaError_t cudaGetDeviceCount(int *out) { return *out = 1, cudaSuccess; }
PUBLIC cudaError_t cudaGetDevice(int *out) { return *out = 0, cudaSuccess; }
PUBLIC cudaError_t cudaSetDevice(int device)
{
    return report(device ? cudaErrorInvalidDevice : cudaSuccess);
}
PUBLIC cudaError_t cudaDeviceSynchronize(void) { return report(cudaSuccess); }
PUBLIC cudaError_t cudaDriverGetVersion(int *out) { return *out = CUDART_VERSION, cudaSuccess; }
PUBLIC cudaError_t cudaRuntimeGetVersion(int *out) { return *out = CUDART_VERSION, cudaSuccess; }
PUBLIC cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = sticky;
    return error;
}
PUBLIC const char *cudaGetErrorString(cudaError_t error)
{
    static const struct {
        cudaError_t error;
        const char *text;
    } texts[] = {{cudaSuccess, "no error"},
                 {cudaErrorInvalidValue, "invalid argument"},
                 {cudaErrorMemoryAllocation, "out of memory"},
                 {cudaErrorInvalidConfiguration, "invalid configuration argument"},
                 {cudaErrorInvalidDeviceFunction, "invalid device function"},
                 {cudaErrorInvalidDevice, "invalid device ordinal"},
                 {cudaErrorIllegalAddress, "an illegal memory access was encountered"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == error) return texts[i].text;
    return "unknown error";
}

PUBLIC cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (device) return report(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    const char *capability = getenv("PTX_CAPABILITY");
    int of = capability ? atoi(capability) : 90;
    snprintf(p->name, sizeof p->name, "NVIDIA %s (PTX on a CPU)", of < 90 ? "A100" : "H100");
    p->major = of / 10, p->minor = of % 10;
    p->totalGlobalMem = (size_t)MEMORY_GIB << 30;
    p->multiProcessorCount = of < 90 ? 108 : 132;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)multiprocessor_shared();
    return cudaSuccess;
}

PUBLIC cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    if (device) return report(cudaErrorInvalidDevice);
    snprintf(out, (size_t)bytes, "0000:01:00.0");
    return cudaSuccess;
}

/* The vendors' libraries call the driver; without them the program uses its own kernels. */
PUBLIC void *dlopen(const char *file, int mode)
{
    static void *(*next)(const char *, int);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    bool is_absent = file && (strstr(file, "libcublas") || strstr(file, "libcudnn") ||
                              strstr(file, "libnccl") || strstr(file, "libcuda"));
    return next(is_absent ? "a library for GPUs" : file, mode);
}

/* --- memory --- */

static struct allocation {
    char *at;
    size_t bytes;
    bool is_host;
    struct allocation *next;
} * allocations;

static cudaError_t allocate(void **out, size_t bytes, bool is_host)
{
    pthread_mutex_lock(&lock);
    cudaError_t error = sticky;
    if (!error && !is_host && allocated + bytes > (size_t)MEMORY_GIB << 30)
        error = cudaErrorMemoryAllocation;
    struct allocation *a = malloc(sizeof *a);
    char *at = error ? NULL : aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (!error && (!a || !at)) error = cudaErrorMemoryAllocation;
    if (!error) {
        memset(at, PTX_LEFTOVER, bytes);
        *a = (struct allocation){at, bytes, is_host, allocations};
        allocations = a;
        ptx_memory_add(at, bytes);
        if (!is_host) allocated += bytes;
        *out = at;
    } else {
        free(a);
    }
    pthread_mutex_unlock(&lock);
    return report(error);
}

static cudaError_t release(void *at)
{
    cudaError_t error = at ? cudaErrorInvalidValue : cudaSuccess;
    pthread_mutex_lock(&lock);
    for (struct allocation **p = &allocations, *a; (a = *p); p = &a->next)
        if (a->at == at) {
            ptx_memory_remove(at);
            if (!a->is_host) allocated -= a->bytes;
            *p = a->next;
            free(a->at);
            free(a);
            error = cudaSuccess;
            break;
        }
    pthread_mutex_unlock(&lock);
    return report(error);
}

PUBLIC cudaError_t cudaMalloc(void **out, size_t bytes) { return allocate(out, bytes, false); }
PUBLIC cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(out, bytes, true);
}
PUBLIC cudaError_t cudaFree(void *at) { return release(at); }
PUBLIC cudaError_t cudaFreeHost(void *at) { return release(at); }
PUBLIC cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = (size_t)MEMORY_GIB << 30;
    *available = *total - allocated;
    return cudaSuccess;
}

PUBLIC cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    for (struct allocation *a = allocations; a; a = a->next)
        if ((const char *)pointer >= a->at && (const char *)pointer < a->at + a->bytes)
            out->type = a->is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* --- streams, events, graphs --- */

PUBLIC cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    return report((*out = calloc(1, sizeof **out)) ? cudaSuccess : cudaErrorMemoryAllocation);
}
PUBLIC cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}
PUBLIC cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return *least = *greatest = 0, cudaSuccess;
}
PUBLIC cudaError_t cudaStreamDestroy(cudaStream_t s) { return free(s), cudaSuccess; }
PUBLIC cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (void)s, report(cudaSuccess); }
PUBLIC cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return cudaSuccess;
}
PUBLIC cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t s)
{
    (void)kind;
    return report(submit(s, (struct node){.kind = COPY, .to = to, .from = from, .bytes = bytes}));
}
PUBLIC cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    return report(submit(s, (struct node){.kind = SET, .to = to, .value = value, .bytes = bytes}));
}

PUBLIC cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    return report((*out = calloc(1, sizeof **out)) ? cudaSuccess : cudaErrorMemoryAllocation);
}
PUBLIC cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
PUBLIC cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), cudaSuccess; }
PUBLIC cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)s;
    clock_gettime(CLOCK_MONOTONIC, &e->at);
    return report(cudaSuccess);
}
PUBLIC cudaError_t cudaEventSynchronize(cudaEvent_t e) { return (void)e, report(cudaSuccess); }
PUBLIC cudaError_t cudaEventQuery(cudaEvent_t e) { return (void)e, report(cudaSuccess); }
PUBLIC cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    *ms = (float)((double)(b->at.tv_sec - a->at.tv_sec) * 1e3 +
                  (double)(b->at.tv_nsec - a->at.tv_nsec) * 1e-6);
    return cudaSuccess;
}

PUBLIC cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    s->capture = calloc(1, sizeof *s->capture);
    return report(s->capture ? cudaSuccess : cudaErrorMemoryAllocation);
}
PUBLIC cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = s->capture;
    s->capture = NULL;
    return report(cudaSuccess);
}
PUBLIC cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g,
                                                 unsigned long long flags)
{
    (void)flags;
    *out = (cudaGraphExec_t)(void *)g; /* freed by neither */
    return report(cudaSuccess);
}
PUBLIC cudaError_t cudaGraphDestroy(cudaGraph_t g) { return (void)g, cudaSuccess; }
PUBLIC cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return (void)e, cudaSuccess; }
PUBLIC cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    (void)s;
    struct CUgraph_st *g = (struct CUgraph_st *)(void *)e;
    cudaError_t error = sticky;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < g->count && !error; i++) error = run_node(&g->nodes[i]);
    pthread_mutex_unlock(&lock);
    return report(error);
}
