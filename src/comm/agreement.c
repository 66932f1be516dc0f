// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.h"

#include "base/checksum.h"
#include "base/host.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Bounds of a message: different lists, entries that are described, hosts of a value, bytes of a
 * value and of all names. */
enum { MAX_LISTS = 8, MAX_DESCRIBED = 3, MAX_HOSTS = 4, MAX_VALUE = 160, MAX_NAMES = 600 };

void agreement_release(struct agreement *a) { text_release(&a->entries); }

void agreement_add(struct agreement *a, const char *name, const char *fmt, ...)
{
    va_list args;
    text_add(&a->entries, name, strlen(name) + 1);
    va_start(args, fmt);
    text_addv(&a->entries, fmt, args);
    va_end(args);
    text_add(&a->entries, "", 1);
}

/* --- comparing hashes --- */

struct list_summary {
    uint64_t hash, bytes; /* bytes 0: the rank abstains */
};

/* Every rank's; the caller frees them, also after a failure. */
static enum status gather_summaries(const struct agreement *a, const struct comm *c,
                                    struct list_summary **of)
{
    *of = heap((size_t)c->size * sizeof **of);
    (*of)[c->rank] =
        (struct list_summary){checksum_hash64(0, a->entries.data, a->entries.len), a->entries.len};
    TRY(comm_all_gather_bytes(c, *of, sizeof **of));
    return STATUS_OK;
}

static bool is_same(const struct list_summary *a, const struct list_summary *b)
{
    return a->hash == b->hash && a->bytes == b->bytes;
}

static bool are_same(const struct list_summary *of, int size)
{
    int first = 0;
    while (first < size && !of[first].bytes) first++;
    for (int r = first; r < size; r++)
        if (of[r].bytes && !is_same(&of[r], &of[first])) return false;
    return true;
}

enum status agreement_test(const struct agreement *a, const struct comm *c, bool *same)
{
    struct list_summary *of;
    enum status st = gather_summaries(a, c, &of);
    *same = !st && are_same(of, c->size);
    free(of);
    TRY(st);
    return STATUS_OK;
}

/* --- reporting differences --- */

struct list_owner {
    char host[64];
    int rank; /* in the run */
    int list; /* which of the different lists it has; -1: it abstains, or there are too many */
};

/* What the ranks of a group hold: up to MAX_LISTS different lists, and who has which. */
struct disagreement {
    const struct comm *comm;
    struct list_owner *owners; /* by rank of the group */
    struct text lists[MAX_LISTS];
    int num_lists;
};

/* Every list that differs is broadcast by the first rank that has it. */
static enum status gather_lists(const struct agreement *a, const struct list_summary *of,
                                struct disagreement *d)
{
    const struct comm *c = d->comm;
    struct list_owner *mine = &d->owners[c->rank];
    host_name(mine->host, sizeof mine->host);
    mine->rank = log_rank() < 0 ? c->rank : log_rank();
    TRY(comm_all_gather_bytes(c, d->owners, sizeof *mine));
    for (int r = 0; r < c->size; r++) {
        int first = 0;
        while (!is_same(&of[first], &of[r])) first++;
        d->owners[r].list = first < r ? d->owners[first].list : -1;
        if (first < r || !of[r].bytes || d->num_lists == MAX_LISTS) continue;
        struct text *list = &d->lists[d->num_lists];
        d->owners[r].list = d->num_lists++;
        text_reserve(list, of[r].bytes);
        if (r == c->rank) memcpy(list->data, a->entries.data, of[r].bytes);
        list->len = of[r].bytes;
        TRY(comm_broadcast_bytes(c, r, list->data, list->len));
    }
    return STATUS_OK;
}

/* The value of the entry of that name, or NULL. */
static const char *find_value(const struct text *list, const char *name)
{
    const char *end = list->data + list->len;
    for (const char *at = list->data; at < end;) {
        const char *value = at + strlen(at) + 1;
        if (!strcmp(at, name)) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

static bool is_same_value(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

/* Appends "ranks 0 2-5 (n1 n2)": the ranks that hold that value. */
static void add_owners(const struct disagreement *d, const char *const *values, const char *value,
                       struct text *out)
{
    struct text ranks = {0}, hosts = {0};
    int count = 0, num_hosts = 0, size = d->comm->size;
    const char *host = "";
    for (int r = 0, last; r < size; r = last + 1) {
        const struct list_owner *o = &d->owners[r];
        last = r;
        if (o->list < 0 || !is_same_value(values[o->list], value)) continue;
        for (; last + 1 < size && d->owners[last + 1].rank == d->owners[last].rank + 1; last++) {
            const struct list_owner *next = &d->owners[last + 1];
            if (next->list < 0 || !is_same_value(values[next->list], value)) break;
        }
        text_addf(&ranks, last > r ? " %d-%d" : " %d", o->rank, d->owners[last].rank);
        count += last - r + 1;
        for (int i = r; i <= last; i++) {
            if (!strcmp(d->owners[i].host, host)) continue;
            host = d->owners[i].host;
            if (num_hosts++ < MAX_HOSTS) text_addf(&hosts, "%s%s", hosts.len ? " " : "", host);
        }
    }
    text_addf(out, "rank%s%s (%s%s)", count > 1 ? "s" : "", ranks.data, hosts.data,
              num_hosts > MAX_HOSTS ? " ..." : "");
    text_release(&ranks), text_release(&hosts);
}

/* Appends "NAME is A on rank 0 (n1) and B on rank 1 (n2)". */
static void describe_entry(const struct disagreement *d, const char *name,
                           const char *const *values, struct text *out)
{
    text_addf(out, "%s is ", name);
    for (int i = 0; i < d->num_lists; i++) {
        int first = 0;
        while (!is_same_value(values[first], values[i])) first++;
        if (first < i) continue;
        if (i) text_adds(out, " and ");
        if (values[i])
            text_addf(out, "%.*s%s", MAX_VALUE, values[i],
                      strlen(values[i]) > MAX_VALUE ? "..." : "");
        else
            text_adds(out, "missing");
        text_adds(out, " on ");
        add_owners(d, values, values[i], out);
    }
}

/* Appends the entries that differ: the first few with their values, then names. */
static void describe(const struct disagreement *d, struct text *out)
{
    int described = 0;
    size_t names_begin = 0;
    for (int i = 0; i < d->num_lists; i++) {
        const char *at = d->lists[i].data, *end = at + d->lists[i].len;
        for (const char *value; at < end; at = value + strlen(value) + 1) {
            const char *values[MAX_LISTS];
            bool differs = false, is_seen = false;
            value = at + strlen(at) + 1;
            for (int j = 0; j < d->num_lists; j++) {
                values[j] = j == i ? value : find_value(&d->lists[j], at);
                differs = differs || !is_same_value(values[j], values[0]);
                is_seen = is_seen || (j < i && values[j]);
            }
            if (!differs || is_seen) continue;
            if (described && described < MAX_DESCRIBED) text_adds(out, "; ");
            if (described++ < MAX_DESCRIBED) {
                describe_entry(d, at, values, out);
                names_begin = out->len;
            } else if (out->len - names_begin < MAX_NAMES) {
                text_addf(out, "%s%s", described == MAX_DESCRIBED + 1 ? "; also " : ", ", at);
            }
        }
    }
}

static enum status report(const struct agreement *a, const struct comm *c,
                          const struct list_summary *of, struct text *message)
{
    struct disagreement d = {.comm = c, .owners = heap((size_t)c->size * sizeof *d.owners)};
    enum status st = gather_lists(a, of, &d);
    if (!st) {
        text_addf(message, "%s differs between ranks: ", a->subject);
        describe(&d, message);
        text_addf(message, "; %s", a->advice);
    }
    for (int i = 0; i < d.num_lists; i++) text_release(&d.lists[i]);
    free(d.owners);
    TRY(st);
    return STATUS_OK;
}

/* Appends to `message` how the lists differ; it stays empty if they do not. */
static enum status compare(const struct agreement *a, const struct comm *c, struct text *message)
{
    struct list_summary *of;
    enum status st = gather_summaries(a, c, &of);
    if (!st && !are_same(of, c->size)) st = report(a, c, of, message);
    free(of);
    TRY(st);
    return STATUS_OK;
}

enum status agreement_check(const struct agreement *a, const struct comm *c)
{
    struct text message = {0};
    enum status st = compare(a, c, &message);
    if (!st && message.len) {
        if (c->rank == 0) st = FAILURE(CONFIG, "%s", message.data);
        st = comm_agree(c, st);
    }
    text_release(&message);
    return st;
}

enum status agreement_check_collectives(const struct comm *c)
{
    struct agreement a = {.subject = "the sequence of collectives",
                          .advice = "this is a bug of the program or of the MPI library; "
                                    "debug.check_collectives = true finds the first one"};
    struct text message = {0};
    char last[128];
    if (!c->counts || c->size == 1) return STATUS_OK;
    uint64_t number = c->counts->collectives;
    comm_describe(&c->counts->last, last, sizeof last);
    agreement_add(&a, comm_name(c), "at number %llu, %s (hash %016llx),",
                  (unsigned long long)number, last, (unsigned long long)c->counts->hash);
    enum status st = compare(&a, c, &message);
    if (!st && message.len) st = FAILURE(COMM, "%s", message.data);
    text_release(&message), agreement_release(&a);
    return st;
}
