// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "comm/shm/segment.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct segment *make(int size, int *fd)
{
    struct segment *s;
    CHECK_STATUS(OK, segment_make(size, fd));
    CHECK_STATUS(OK, segment_map(*fd, size, &s));
    return s;
}

/* Byte i of packet n. */
static unsigned char byte_of(uint32_t n, uint32_t i) { return (unsigned char)(n * 7 + i * 13); }

static uint32_t length_of(uint32_t n) { return n * 2741 % (SEGMENT_FRAGMENT_BYTES + 1); }

static bool write_packet(struct segment *s, uint32_t n)
{
    unsigned char x[SEGMENT_FRAGMENT_BYTES];
    struct packet p = {.kind = n % 4, .bytes = length_of(n), .tag = -(int64_t)n, .group = n};
    for (uint32_t i = 0; i < p.bytes; i++) x[i] = byte_of(n, i);
    return segment_write(s, 1, 0, &p, x);
}

static bool read_packet(struct segment *s, uint32_t n)
{
    unsigned char x[SEGMENT_FRAGMENT_BYTES];
    struct packet p;
    uint32_t i = 0;
    if (!segment_peek(s, 1, 0, &p)) return false;
    CHECK(p.kind == n % 4 && p.bytes == length_of(n) && p.tag == -(int64_t)n && p.group == n);
    segment_read(s, 1, 0, &p, n % 5 ? x : NULL);
    while (n % 5 && i < p.bytes && x[i] == byte_of(n, i)) i++;
    CHECK(!(n % 5) || i == p.bytes);
    return true;
}

/* Fills the ring and reads some, many times, so that packets begin everywhere in it. */
TEST(segment_delivers_packets_of_every_length_in_order)
{
    int fd;
    uint32_t written = 0, read = 0;
    struct segment *s = make(2, &fd);
    struct packet p;
    CHECK(!segment_peek(s, 1, 0, &p) && !segment_peek(s, 0, 1, &p));
    for (int round = 0; round < 60; round++) {
        while (write_packet(s, written)) written++;
        for (int i = 0; i < 23; i++) CHECK(read_packet(s, read++));
    }
    while (read_packet(s, read)) read++;
    CHECK(read == written && read > 1000);
    segment_unmap(s), close(fd);
}

TEST(segment_rings_a_writer_that_found_no_space)
{
    int fd;
    uint32_t written = 0, read = 0;
    struct segment *s = make(2, &fd);
    struct progress_bell *bell = segment_bell(s, 1);
    while (write_packet(s, written)) written++;
    CHECK(!bell->rings);
    while (!bell->rings && read_packet(s, read)) read++;
    CHECK(bell->rings == 1 && read < written && write_packet(s, written));
    segment_unmap(s), close(fd);
}

TEST(segment_keeps_the_first_exit_code)
{
    int fd;
    struct segment *s = make(3, &fd), *other;
    CHECK_STATUS(OK, segment_map(fd, 3, &other));
    CHECK(segment_size(other) == 3 && segment_exit_code(s) == 0);
    segment_set_exit_code(s, 80), segment_set_exit_code(other, 81);
    CHECK(segment_exit_code(s) == 80 && segment_exit_code(other) == 80);
    segment_unmap(s), segment_unmap(other), close(fd);
    segment_unmap(NULL);
}

/* What rank r of the gather that follows does; returns whether it saw all parts. */
static bool gathers(int fd, int rank, int size)
{
    enum { ROUNDS = 200 };
    struct segment *s;
    bool ok = !segment_map(fd, size, &s);
    for (int round = 0; round < ROUNDS && ok; round++) {
        int parts[8] = {0};
        parts[rank] = 1000 * round + rank;
        segment_gather(s, rank, parts, sizeof *parts);
        for (int r = 0; r < size; r++) ok = ok && parts[r] == 1000 * round + r;
    }
    return ok;
}

TEST(segment_gathers_again_and_again)
{
    enum { SIZE = 5 };
    pid_t pids[SIZE];
    int fd, status;
    segment_unmap(make(SIZE, &fd));
    for (int r = 0; r < SIZE; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (!pids[r]) _exit(gathers(fd, r, SIZE) ? 0 : 1);
    }
    for (int r = 0; r < SIZE; r++) CHECK(waitpid(pids[r], &status, 0) == pids[r] && status == 0);
    close(fd);
}
