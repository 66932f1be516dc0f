// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/segment.h"

#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CACHE_LINE = 64 };

/* Counts of bytes that grow forever; a byte's place is its count modulo the ring's size. */
struct packet_ring {
    alignas(CACHE_LINE) _Atomic uint64_t written; /* by the writer */
    alignas(CACHE_LINE) _Atomic uint64_t read;    /* by the reader */
    _Atomic uint32_t is_full;                     /* the writer waits for space */
};

struct rank_area {
    alignas(CACHE_LINE) struct progress_bell bell;
    alignas(CACHE_LINE) _Atomic pid_t process;
    alignas(CACHE_LINE) char gathered[2][SEGMENT_GATHER_BYTES]; /* of even and odd gathers */
};

/* The rank areas follow, then the rings by sender and receiver, then their bytes likewise. */
struct shared_header {
    _Atomic int exit_code;
    _Atomic uint32_t arrived; /* at gathers: a futex */
};

struct segment {
    struct shared_header *header;
    struct rank_area *ranks;
    struct packet_ring *rings;
    char *bytes;
    size_t ring_bytes, mapped_bytes;
    int size;
    uint32_t num_gathers; /* of this process */
};

_Static_assert(sizeof(struct packet) == 48, "of all ranks the same");
enum { PACKET_ALIGN = 16, HEADER_BYTES = 48 };

/* Rings of many ranks are smaller: together they take 32 MiB for 8 ranks, 128 MiB for 32, 256 MiB
 * for 64 and 2 GiB for 256. */
static size_t ring_bytes(int size)
{
    if (size <= 8) return (size_t)1 << 19;
    if (size <= 32) return (size_t)1 << 17;
    return size <= 64 ? (size_t)1 << 16 : (size_t)1 << 15;
}

static size_t round_up(size_t bytes) { return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE; }

static size_t rings_begin(int size)
{
    return round_up(sizeof(struct shared_header)) + (size_t)size * sizeof(struct rank_area);
}

static size_t bytes_begin(int size)
{
    return rings_begin(size) + (size_t)size * (size_t)size * sizeof(struct packet_ring);
}

static size_t segment_bytes(int size)
{
    return bytes_begin(size) + (size_t)size * (size_t)size * ring_bytes(size);
}

enum status segment_make(int size, int *fd)
{
    *fd = memfd_create("llamero ranks", MFD_CLOEXEC);
    if (*fd < 0) FAIL(IO, "memory that ranks share: %s", strerror(errno));
    if (!ftruncate(*fd, (off_t)segment_bytes(size))) return STATUS_OK;
    int error = errno;
    close(*fd);
    FAIL(IO, "%zu bytes of memory that %d ranks share: %s", segment_bytes(size), size,
         strerror(error));
}

enum status segment_map(int fd, int size, struct segment **out)
{
    size_t bytes = segment_bytes(size);
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *out = NULL;
    if (at == MAP_FAILED)
        FAIL(IO, "mapping %zu bytes that %d ranks share: %s", bytes, size, strerror(errno));
    struct segment *s = *out = heap(sizeof *s);
    *s = (struct segment){.header = (struct shared_header *)(void *)at,
                          .ring_bytes = ring_bytes(size),
                          .mapped_bytes = bytes,
                          .size = size};
    s->ranks = (struct rank_area *)(void *)(at + round_up(sizeof(struct shared_header)));
    s->rings = (struct packet_ring *)(void *)(at + rings_begin(size));
    s->bytes = at + bytes_begin(size);
    return STATUS_OK;
}

void segment_unmap(struct segment *s)
{
    if (!s) return;
    munmap(s->header, s->mapped_bytes);
    free(s);
}

int segment_size(const struct segment *s) { return s->size; }

struct progress_bell *segment_bell(struct segment *s, int rank) { return &s->ranks[rank].bell; }

void segment_set_process(struct segment *s, int rank, pid_t pid)
{
    atomic_store(&s->ranks[rank].process, pid);
}

pid_t segment_process(const struct segment *s, int rank)
{
    return atomic_load(&s->ranks[rank].process);
}

void segment_set_exit_code(struct segment *s, int code)
{
    int none = 0;
    atomic_compare_exchange_strong(&s->header->exit_code, &none, code);
}

int segment_exit_code(const struct segment *s) { return atomic_load(&s->header->exit_code); }

/* A rank may be a gather ahead of another that still reads, but not two: hence two places. */
void segment_gather(struct segment *s, int rank, void *x, size_t bytes)
{
    BUG_IF(bytes > SEGMENT_GATHER_BYTES);
    _Atomic uint32_t *arrived = &s->header->arrived;
    uint32_t round = s->num_gathers++, all = (round + 1) * (uint32_t)s->size, now;
    memcpy(s->ranks[rank].gathered[round & 1], (char *)x + (size_t)rank * bytes, bytes);
    now = atomic_fetch_add(arrived, 1) + 1;
    syscall(SYS_futex, arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    while ((int32_t)(now - all) < 0) {
        syscall(SYS_futex, arrived, FUTEX_WAIT, now, NULL, NULL, 0);
        now = atomic_load(arrived);
    }
    for (int r = 0; r < s->size; r++)
        memcpy((char *)x + (size_t)r * bytes, s->ranks[r].gathered[round & 1], bytes);
}

static size_t padded(size_t bytes)
{
    return (bytes + PACKET_ALIGN - 1) / PACKET_ALIGN * PACKET_ALIGN;
}

static size_t ring_index(const struct segment *s, int from, int to)
{
    return (size_t)from * (size_t)s->size + (size_t)to;
}

static void copy_in(const struct segment *s, char *ring, uint64_t at, const void *x, size_t bytes)
{
    size_t place = (size_t)(at & (s->ring_bytes - 1)), first = s->ring_bytes - place;
    if (first > bytes) first = bytes;
    memcpy(ring + place, x, first);
    if (bytes > first) memcpy(ring, (const char *)x + first, bytes - first);
}

static void copy_out(const struct segment *s, const char *ring, uint64_t at, void *x, size_t bytes)
{
    size_t place = (size_t)(at & (s->ring_bytes - 1)), first = s->ring_bytes - place;
    if (first > bytes) first = bytes;
    memcpy(x, ring + place, first);
    if (bytes > first) memcpy((char *)x + first, ring, bytes - first);
}

static bool has_space(const struct segment *s, struct packet_ring *r, uint64_t written,
                      size_t bytes)
{
    return written + bytes - atomic_load(&r->read) <= s->ring_bytes;
}

bool segment_write(struct segment *s, int from, int to, const struct packet *p, const void *payload)
{
    struct packet_ring *r = &s->rings[ring_index(s, from, to)];
    char *ring = s->bytes + ring_index(s, from, to) * s->ring_bytes;
    uint64_t written = atomic_load_explicit(&r->written, memory_order_relaxed);
    size_t bytes = HEADER_BYTES + padded(p->bytes);
    BUG_IF(p->bytes > SEGMENT_FRAGMENT_BYTES);
    if (!has_space(s, r, written, bytes)) {
        atomic_store(&r->is_full, 1); /* before the reader's last change is looked at again */
        if (!has_space(s, r, written, bytes)) return false;
        atomic_store(&r->is_full, 0);
    }
    copy_in(s, ring, written, p, sizeof *p);
    if (p->bytes) copy_in(s, ring, written + HEADER_BYTES, payload, p->bytes);
    atomic_store_explicit(&r->written, written + bytes, memory_order_release);
    return true;
}

bool segment_peek(struct segment *s, int from, int to, struct packet *p)
{
    struct packet_ring *r = &s->rings[ring_index(s, from, to)];
    const char *ring = s->bytes + ring_index(s, from, to) * s->ring_bytes;
    uint64_t read = atomic_load_explicit(&r->read, memory_order_relaxed);
    if (atomic_load_explicit(&r->written, memory_order_acquire) == read) return false;
    copy_out(s, ring, read, p, sizeof *p);
    return true;
}

void segment_read(struct segment *s, int from, int to, const struct packet *p, void *payload)
{
    struct packet_ring *r = &s->rings[ring_index(s, from, to)];
    const char *ring = s->bytes + ring_index(s, from, to) * s->ring_bytes;
    uint64_t read = atomic_load_explicit(&r->read, memory_order_relaxed);
    if (payload && p->bytes) copy_out(s, ring, read + HEADER_BYTES, payload, p->bytes);
    read += HEADER_BYTES + padded(p->bytes);
    atomic_store(&r->read, read);
    if (!atomic_load(&r->is_full) || atomic_load(&r->written) - read > s->ring_bytes / 2) return;
    atomic_store(&r->is_full, 0);
    progress_ring(segment_bell(s, from));
}
